#include "rgpu.h"

int rgpu_reference(const rgpu_case *problem) {
    const float *in = problem->args[0].data;
    float *out = problem->args[1].data;
    int64_t count = problem->sizes[0] * problem->sizes[1];
    for (int64_t i = 0; i < count; i++) {
        out[i] = 2.0f * in[i];
    }
    return 0;
}
