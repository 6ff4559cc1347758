#include "rgpu.h"

#define BINS 256

int rgpu_reference(const rgpu_case *problem) {
    const uint8_t *bytes = problem->args[0].data;
    uint32_t *out = problem->args[1].data;
    int64_t n = problem->sizes[0];
    for (int bin = 0; bin < BINS; bin++) {
        out[bin] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        out[bytes[i]]++;
    }
    return 0;
}
