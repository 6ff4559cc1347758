#include "rgpu.h"

int rgpu_reference(const rgpu_case *problem) {
    const float *in = problem->args[0].data;
    float *out = problem->args[1].data;
    int64_t rows = problem->sizes[0];
    int64_t cols = problem->sizes[1];
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t col = 0; col < cols; col++) {
            out[col * rows + row] = in[row * cols + col];
        }
    }
    return 0;
}
