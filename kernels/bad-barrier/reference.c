#include "rgpu.h"

/* The even elements get twice their right neighbour, the odd ones three times their left neighbour. */
int rgpu_reference(const rgpu_case *problem) {
    const float *x = problem->args[0].data;
    float *y = problem->args[1].data;
    int64_t n = problem->sizes[0];
    for (int64_t i = 0; i < n; i++) {
        if (i % 2 == 0) {
            y[i] = i + 1 < n ? 2.0f * x[i + 1] : 0.0f;
        } else {
            y[i] = 3.0f * x[i - 1];
        }
    }
    return 0;
}
