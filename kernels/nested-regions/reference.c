#include <stdlib.h>

#include "rgpu.h"

/* out = (x + y) * y + 5 y, with n x n matrices. */
int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    const float *y = problem->args[1].data;
    float *out = problem->args[2].data;
    int64_t n = problem->sizes[0];

    double *row = malloc((size_t)n * sizeof *row);
    if (!row) {
        return 1;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            row[j] = 5.0 * y[i * n + j];
        }
        for (int64_t p = 0; p < n; p++) {
            double left = (double)x[i * n + p] + y[i * n + p];
            for (int64_t j = 0; j < n; j++) {
                row[j] += left * y[p * n + j];
            }
        }
        for (int64_t j = 0; j < n; j++) {
            out[i * n + j] = (float)row[j];
        }
    }
    free(row);
    return 0;
}
