#include <math.h>

#include "rgpu.h"

int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    float *y = problem->args[1].data;
    int64_t rows = problem->sizes[0];
    int64_t cols = problem->sizes[1];

    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * cols;
        float *out = y + row * cols;
        double largest = in[0];
        for (int64_t i = 1; i < cols; i++) {
            largest = fmax(largest, in[i]);
        }
        double sum = 0.0;
        for (int64_t i = 0; i < cols; i++) {
            sum += exp(in[i] - largest);
        }
        for (int64_t i = 0; i < cols; i++) {
            out[i] = (float)(exp(in[i] - largest) / sum);
        }
    }
    return 0;
}
