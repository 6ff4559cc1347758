// The slow reference on the GPU: one thread per output, 16 elements at a time as whole numbers. Nothing of the
// other paths is used here but the place of a scale.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

#include "layout.h"

namespace wagmi {

// Twice the value of an E2M1 code, a whole number.
__device__ inline int twice_e2m1(int code) {
    int magnitude = code & 7;
    int value = magnitude < 4 ? magnitude : magnitude < 6 ? 2 * magnitude - 4 : 4 * magnitude - 16;
    return code & 8 ? -value : value;
}

__device__ inline double e4m3(int code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    return exponent ? ldexp(8.0 + mantissa, exponent - 10) : ldexp((double)mantissa, -9);
}

__global__ void wagmi_reference_kernel(const uint8_t *a, const uint8_t *b, const uint8_t *sfa, const uint8_t *sfb,
                                       __half *c, int m, int n, int k) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= n) return;
    const uint2 *x = (const uint2 *)(a + (int64_t)row * (k / 2));
    const uint2 *y = (const uint2 *)(b + (int64_t)column * (k / 2));
    double sum = 0.0;
    for (int block = 0; block < k / 16; block++) {
        uint2 p = x[block], q = y[block];
        int dot = 0;
        for (int i = 0; i < 32; i += 4) {
            dot += twice_e2m1(p.x >> i & 15) * twice_e2m1(q.x >> i & 15);
            dot += twice_e2m1(p.y >> i & 15) * twice_e2m1(q.y >> i & 15);
        }
        double scale = e4m3(sfa[scale_offset(row, block * 16, k)]) * e4m3(sfb[scale_offset(column, block * 16, k)]);
        sum += 0.25 * dot * scale;
    }
    c[(int64_t)row * n + column] = __double2half(sum);
}

} // namespace wagmi
