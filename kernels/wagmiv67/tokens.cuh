// First kernel of the portable paths: the tokens, decoded once. Each weight tile needs all tokens of its
// group, so decoding them per tile would cost as much as the weights do; as f16 they fit into L2.
#pragma once
#include "decode.cuh"
#include "layout.h"

namespace wagmi {

// A token tile as the device sees it.
struct DeviceTile {
    const uint8_t *codes;  // of the tile's first token
    const uint8_t *scales; // of the problem, blocked
    uint8_t *decoded;      // [slab][n][128], swizzled
    int first, count, n, slabs;
    int k;
};

// Blocks of 256 threads: 32 rows x 8 chunks, twice; blockIdx.x is the slab, .y the tile, .z the 64 rows.
constexpr int TOKEN_THREADS = 256, TOKEN_ROWS = 64;

__global__ void __launch_bounds__(TOKEN_THREADS, 6) wagmi_tokens(const DeviceTile *tiles) {
    const DeviceTile tile = tiles[blockIdx.y];
    int slab = blockIdx.x;
    if (slab >= tile.slabs) return; // counts as having let the next kernel start
    int chunk = threadIdx.x % 8;
    uint8_t *out = tile.decoded + (int64_t)slab * tile.n * 128;
    // Loads that go past the cache that stores could change: so those of several rows are under way at once.
#pragma unroll
    for (int i = 0; i < TOKEN_ROWS; i += TOKEN_THREADS / 8) {
        int row = blockIdx.z * TOKEN_ROWS + i + threadIdx.x / 8;
        if (row >= tile.n) break;
        uint32_t pair[4] = {0, 0, 0, 0}; // rows of padding are zero
        if (row < tile.count) {
            const uint8_t *codes = tile.codes + (int64_t)row * (tile.k / 2) + slab * SLAB_FP4_BYTES + 4 * (chunk / 4);
            uint32_t scales = __ldg(
                (const uint32_t *)(tile.scales + scale_offset(tile.first + row, (int64_t)slab * SLAB, tile.k)));
#pragma unroll
            for (int block = 0; block < 4; block++) {
                uint32_t word = __ldg((const uint32_t *)(codes + 8 * block));
                uint32_t scale = scales >> (8 * block) & 0x7f;
                pair[block] = decode_token_pair(word >> (4 * (chunk % 4)), scale_pair(scale, scale));
            }
        }
        *(uint4 *)(out + row * 128 + swizzled_chunk(row, chunk) * 16) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

} // namespace wagmi
