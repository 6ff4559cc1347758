#include <stdlib.h>

#include "rgpu.h"

/* Sums in double precision, one row of c at a time so that b is read in order. */
int rgpu_reference(const rgpu_case *problem) {
    const float *a = problem->args[0].data;
    const float *b = problem->args[1].data;
    float *c = problem->args[2].data;
    int64_t m = problem->sizes[0];
    int64_t n = problem->sizes[1];
    int64_t k = problem->sizes[2];

    double *row = malloc((size_t)n * sizeof *row);
    if (!row) {
        return 1;
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            row[j] = 0.0;
        }
        for (int64_t p = 0; p < k; p++) {
            double left = a[i * k + p];
            for (int64_t j = 0; j < n; j++) {
                row[j] += left * b[p * n + j];
            }
        }
        for (int64_t j = 0; j < n; j++) {
            c[i * n + j] = (float)row[j];
        }
    }
    free(row);
    return 0;
}
