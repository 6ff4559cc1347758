#include "rgpu.h"

/* What the kernel would compute with the right bound. */
int rgpu_reference(const rgpu_case *problem) {
    const float *a = problem->args[0].data;
    const float *b = problem->args[1].data;
    float *c = problem->args[2].data;
    int64_t n = problem->sizes[0];
    for (int64_t i = 0; i < n; i++) {
        c[i] = a[i] + b[i];
    }
    return 0;
}
