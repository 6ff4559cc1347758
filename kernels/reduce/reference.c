#include "rgpu.h"

int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    float *total = problem->args[1].data;
    int64_t n = problem->sizes[0];
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    *total = (float)sum;
    return 0;
}
