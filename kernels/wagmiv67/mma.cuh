// The path of every GPU from sm_80 on: mma.sync, with cp.async into a ring of shared memory. A block has 64 rows
// of weights, 16 a warp, and up to 64 tokens. Made to be right and plain; where wgmma exists that is used.
#pragma once
#include "async.cuh"
#include "decode.cuh"
#include "layout.h"
#include "pieces.cuh"

namespace wagmi {
namespace mma {

constexpr int ROWS = 64, TOKENS = 64, THREADS = 128, STAGES = 4;
constexpr int TOKEN_BYTES = TOKENS * 128, WEIGHT_BYTES = ROWS * SLAB_FP4_BYTES;
constexpr int STAGE_BYTES = TOKEN_BYTES + WEIGHT_BYTES + SCALE_ATOM;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES;

__device__ __forceinline__ void copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__global__ void __launch_bounds__(THREADS) wagmi_mma(const __grid_constant__ Operands operands, const DevicePiece *pieces) {
    extern __shared__ __align__(128) uint8_t raw[];
    const DevicePiece piece = pieces[blockIdx.x];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
    int first_row = piece.row_block * ROWS;
    const Matrices &matrices = operands.of[piece.problem];
    const uint8_t *codes = matrices.b + (int64_t)first_row * (piece.k / 2);
    const uint8_t *scales = matrices.sfb + scale_offset(first_row / 128 * 128, 0, piece.k);
    int slabs = piece.slab_end - piece.slab_begin;

    auto fetch = [&](int slab) {
        if (slab < slabs) {
            uint32_t stage = shared_address(raw) + slab % STAGES * STAGE_BYTES;
            const uint8_t *tokens = piece.decoded + (int64_t)(piece.slab_begin + slab) * piece.n * 128;
            for (int i = thread; i < piece.n * 8; i += THREADS) copy16(stage + i * 16, tokens + i * 16);
            int row = thread / 2, half = thread % 2 * 16;
            copy16(stage + TOKEN_BYTES + row * 32 + half,
                   codes + (int64_t)row * (piece.k / 2) + (piece.slab_begin + slab) * SLAB_FP4_BYTES + half);
            if (thread < 32)
                copy16(stage + TOKEN_BYTES + WEIGHT_BYTES + thread * 16,
                       scales + (int64_t)(piece.slab_begin + slab) * SCALE_ATOM + thread * 16);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    float sum[TOKENS / 8][4] = {};
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    for (int slab = 0; slab < slabs; slab++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        fetch(slab + STAGES - 1);
        const uint8_t *stage = raw + slab % STAGES * STAGE_BYTES;
        int row = warp * 16 + g;
        const uint8_t *mine = stage + TOKEN_BYTES + row * 32 + t * 8;
        const uint8_t *scale = stage + TOKEN_BYTES + WEIGHT_BYTES;
        int in_atom = first_row % 128 + row;
        uint32_t pair = scale_pair(scale[scale_in_atom(in_atom, t)], scale[scale_in_atom(in_atom + 8, t)]);
        uint32_t a[16];
        decode_slab(*(const uint2 *)mine, *(const uint2 *)(mine + 8 * 32), pair, a);
#pragma unroll
        for (int step = 0; step < 4; step++) {
#pragma unroll
            for (int j = 0; j < TOKENS / 16; j++) {
                if (16 * j >= piece.n) break;
                // Four matrices: tokens 0..7 with both chunks of the step, then tokens 8..15.
                int token = 16 * j + lane / 16 * 8 + lane % 8;
                uint32_t b[4];
                uint32_t from =
                    shared_address(stage) + token * 128 + swizzled_chunk(token, 2 * step + lane / 8 % 2) * 16;
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                             : "r"(from)
                             : "memory");
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *d = sum[2 * j + half];
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                                 : "r"(a[4 * step]), "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]),
                                   "r"(b[2 * half]), "r"(b[2 * half + 1]));
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = 8 * j + 2 * t + i % 2, row = first_row + warp * 16 + g + i / 2 * 8;
            if (token < piece.count)
                matrices.c[(int64_t)(piece.first + token) * piece.rows + row] = __float2half_rn(sum[j][i] * WEIGHT_UNIT);
        }
    }
}

} // namespace mma
} // namespace wagmi
