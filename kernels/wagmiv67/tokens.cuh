// First kernel of the portable paths: the tokens, decoded once. Each weight tile needs all tokens of its
// group, so decoding them per tile would cost as much as the weights do; as f16 they fit into L2.
#pragma once
#include "decode.cuh"
#include "layout.h"
#include "pieces.cuh"

namespace wagmi {

// A token tile as the device sees it.
struct DeviceTile {
    uint8_t *decoded; // [slab][n][128], swizzled
    int problem;
    int first, count, n, slabs; // first token
    int k;
};

// One 16-byte chunk of a token's slab: two codes from each of four scale blocks, those of the slab, or where slabs
// are paired every other one of the pair (layout.h).
template <bool PAIRED>
__device__ __forceinline__ uint4 decode_chunk(const Matrices &matrices, int token, int slab, int k, int chunk) {
    int half = PAIRED ? slab % 2 : 0, first = PAIRED ? slab - half : slab, step = PAIRED ? 2 : 1;
    const uint8_t *codes = matrices.a + (int64_t)token * (k / 2) + first * SLAB_FP4_BYTES + 8 * half + 4 * (chunk / 4);
    const uint32_t *scales = (const uint32_t *)(matrices.sfa + scale_offset(token, (int64_t)first * SLAB, k));
    uint32_t low = __ldg(scales), high = PAIRED ? __ldg(scales + SCALE_ATOM / 4) : 0;
    uint32_t pair[4];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        int block = step * t + half;
        uint32_t word = __ldg((const uint32_t *)(codes + 8 * step * t));
        uint32_t scale = (block < 4 ? low : high) >> (8 * (block % 4)) & 0x7f;
        pair[t] = decode_token_pair(word >> (4 * (chunk % 4)), scale_pair(scale, scale));
    }
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

// Blocks of 256 threads: 32 rows x 8 chunks, twice; blockIdx.x is the slab, .y the tile, .z the 64 rows.
constexpr int TOKEN_THREADS = 256, TOKEN_ROWS = 64;

template <bool PAIRED>
__global__ void __launch_bounds__(TOKEN_THREADS, 6)
    wagmi_tokens(const __grid_constant__ Operands operands, const DeviceTile *tiles) {
#if __CUDA_ARCH__ >= 900 && WAGMI_STEP >= 3
    // The next kernel's blocks start as this one's leave; before it reads what is decoded here, it waits for the end.
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    const DeviceTile tile = tiles[blockIdx.y];
    int slab = blockIdx.x;
    if (slab >= tile.slabs) return; // counts as having let the next kernel start
    const Matrices &matrices = operands.of[tile.problem];
    int chunk = threadIdx.x % 8;
    uint8_t *out = tile.decoded + (int64_t)slab * tile.n * 128;
    // Loads that go past the cache that stores could change: so those of several rows are under way at once.
#pragma unroll
    for (int i = 0; i < TOKEN_ROWS; i += TOKEN_THREADS / 8) {
        int row = blockIdx.z * TOKEN_ROWS + i + threadIdx.x / 8;
        if (row >= tile.n) break;
        uint4 decoded = make_uint4(0, 0, 0, 0); // rows of padding are zero
        if (row < tile.count)
            decoded = decode_chunk<PAIRED>(matrices, tile.first + row, slab, tile.k, chunk);
        *(uint4 *)(out + row * 128 + swizzled_chunk(row, chunk) * 16) = decoded;
    }
#if __CUDA_ARCH__ >= 900 && WAGMI_STEP < 3
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

} // namespace wagmi
