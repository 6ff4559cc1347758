#include "rgpu.h"

int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    const float *weights = problem->args[1].data;
    float *y = problem->args[2].data;
    int64_t n = problem->sizes[0];
    int64_t taps = problem->sizes[1];

    double total = 0.0;
    for (int64_t t = 0; t < taps; t++) {
        total += weights[t];
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < taps; t++) {
            int64_t from = i + t - taps / 2;
            if (from >= 0 && from < n) {
                sum += weights[t] / total * x[from];
            }
        }
        y[i] = (float)sum;
    }
    return 0;
}
