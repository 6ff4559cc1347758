#include "rgpu.h"

#define THREADS 256

int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    float *y = problem->args[1].data;
    int64_t blocks = problem->sizes[0];
    for (int64_t block = 0; block < blocks; block++) {
        for (int64_t i = 0; i < THREADS; i++) {
            y[block * THREADS + i] = x[block * THREADS + THREADS - 1 - i];
        }
    }
    return 0;
}
