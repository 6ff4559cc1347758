#include "rgpu.h"

int rgpu_reference(const rgpu_case *problem) {
    const int32_t *start = problem->args[0].data;
    int32_t *steps = problem->args[1].data;
    int64_t n = problem->sizes[0];
    for (int64_t i = 0; i < n; i++) {
        uint64_t value = (uint64_t)start[i];
        int32_t count = 0;
        while (value > 1) {
            value = value % 2 == 0 ? value / 2 : 3 * value + 1;
            count++;
        }
        steps[i] = count;
    }
    return 0;
}
