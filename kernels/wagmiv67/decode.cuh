// NVFP4 -> f16 in registers: eight codes at a time, exact, the scale folded in by the one multiplication that
// also corrects the exponent.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

namespace wagmi {

// Decoded weights are (value x scale) x 2^-7: E2M1's exponent field put into f16's gives value x 2^-14, and
// 2^7 x scale is the largest multiple of any E4M3 scale that f16 holds. The products are multiples of 2^-17,
// so all are exact. The epilogue multiplies by 2^7.
constexpr float WEIGHT_UNIT = 128.0f;

__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b) {
    __half2 product = __hmul2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&product);
}

// Two E4M3 scales (sign clear) -> 2^7 x scale, as f16, in the two halves. The bits at f16's place are
// scale x 2^-8, subnormals too.
__device__ __forceinline__ uint32_t scale_pair(uint32_t low, uint32_t high) {
    return times(low << 7 | high << 23, 0x78007800u); // x 2^15
}
// The same of byte `BYTE` (0, 1) of each; the bytes above are zero.
template <int BYTE> __device__ __forceinline__ uint32_t scale_pair_of(uint32_t low, uint32_t high) {
    return times(__byte_perm(low, high, BYTE ? 0x2521 : 0x2420) << 7, 0x78007800u);
}
__device__ __forceinline__ uint32_t low_twice(uint32_t pair) {
    __half2 twice = __low2half2(*reinterpret_cast<__half2 *>(&pair));
    return *reinterpret_cast<uint32_t *>(&twice);
}
__device__ __forceinline__ uint32_t high_twice(uint32_t pair) {
    __half2 twice = __high2half2(*reinterpret_cast<__half2 *>(&pair));
    return *reinterpret_cast<uint32_t *>(&twice);
}

// The eight codes of `word` times `scale` (twice the same f16): pair[i] holds the nibbles i and i + 4.
//
// A code is S EE M. As the high byte of an f16 that is S at bit 7 and EEM at bits 3..1: one shift, two masks
// for four codes, then each pair is spread to two halves.
__device__ __forceinline__ void decode8(uint32_t word, uint32_t scale, uint32_t pair[4]) {
    uint32_t odd = (word >> 3 & 0x0e0e0e0eu) | (word & 0x80808080u);
    uint32_t even = (word << 1 & 0x0e0e0e0eu) | (word << 4 & 0x80808080u);
    pair[0] = times(__byte_perm(even, 0, 0x2404), scale);
    pair[1] = times(__byte_perm(odd, 0, 0x2404), scale);
    pair[2] = times(even & 0xff00ff00u, scale);
    pair[3] = times(odd & 0xff00ff00u, scale);
}

// The A fragments of a whole slab, for one warp's 16 rows: fragment[4 * step + r] is register r of the k16
// instruction `step`. `row` and `row8` are this thread's eight bytes of rows g and g + 8.
__device__ __forceinline__ void decode_slab(uint2 row, uint2 row8, uint32_t scales, uint32_t fragment[16]) {
    uint32_t scale = low_twice(scales), scale8 = high_twice(scales);
    const uint32_t words[2] = {row.x, row.y}, words8[2] = {row8.x, row8.y};
#pragma unroll
    for (int u = 0; u < 2; u++) {
        uint32_t pair[4], pair8[4];
        decode8(words[u], scale, pair);
        decode8(words8[u], scale8, pair8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int step = 2 * u + i / 2, h = i % 2;
            fragment[4 * step + 2 * h] = pair[i];
            fragment[4 * step + 2 * h + 1] = pair8[i];
        }
    }
}

// One code at bits 0..3 and one at 16..19 -> f16 pair, value x scale, exact; `scale` = 2^7 x scale twice.
__device__ __forceinline__ uint32_t decode_token_pair(uint32_t word, uint32_t scale) {
    uint32_t bits = (word & 0x00080008u) << 12 | (word & 0x00070007u) << 9;
    return times(times(bits, scale), 0x58005800u); // x 2^-14 x 2^7, then x 2^7
}

} // namespace wagmi
