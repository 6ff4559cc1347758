#include "rgpu.h"

#define POINTS 64

/* Additions only, in the kernel's order: the two agree to the last bit. */
int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    float *y = problem->args[1].data;
    int64_t n = problem->sizes[0];
    for (int64_t column = 0; column < n; column++) {
        float value[POINTS];
        for (int i = 0; i < POINTS; i++) {
            value[i] = x[i * n + column];
        }
        for (int half = 1; half < POINTS; half *= 2) {
            for (int i = 0; i < POINTS; i++) {
                if ((i & half) == 0) {
                    float low = value[i];
                    float high = value[i + half];
                    value[i] = low + high;
                    value[i + half] = low - high;
                }
            }
        }
        for (int i = 0; i < POINTS; i++) {
            y[i * n + column] = value[i];
        }
    }
    return 0;
}
