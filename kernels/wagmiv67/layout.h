// Where everything lies: NVFP4 data in global memory, decoded tokens in the workspace, descriptors and
// tensor memory. Plain C++ that host and device compile alike, so that a host test can hold each formula
// against a slower statement of the same fact (check.cpp).
//
// Sources: PTX ISA (wgmma and tcgen05 matrix descriptors, scale layouts), CUTLASS's documented 512-byte
// block of scales.
#pragma once
#include <stdint.h>

// Which of the improvements of docs/tuning.md are in, in their order; all of them unless asked otherwise.
#ifndef WAGMI_STEP
#define WAGMI_STEP 3
#endif

#ifdef __CUDACC__
#define WAGMI_HD __host__ __device__ inline
#define WAGMI_UNROLL _Pragma("unroll")
#define WAGMI_NO_UNROLL _Pragma("unroll 1")
#else
#define WAGMI_HD inline
#define WAGMI_UNROLL
#define WAGMI_NO_UNROLL
#endif

namespace wagmi {

constexpr int SLAB = 64;           // elements of K in a slab: four scale blocks of 16
constexpr int SLAB_FP4_BYTES = 32; // of one packed row
constexpr int SCALE_ATOM = 512;    // bytes of scales of 128 rows and one slab

WAGMI_HD int ceil_div(int a, int b) { return (a + b - 1) / b; }
WAGMI_HD int align_up(int a, int b) { return ceil_div(a, b) * b; }

// Byte of the scale of (row, k) in the blocked layout: blocks of 128 rows x 64 elements, 512 bytes each,
// K fastest; inside, row % 32 takes 16 bytes, row / 32 four, the scale block within the slab one.
WAGMI_HD int64_t scale_offset(int64_t row, int64_t k, int64_t k_total) {
    return ((row / 128) * ((k_total + 63) / 64) + k / 64) * SCALE_ATOM + (row % 32) * 16 + (row % 128) / 32 * 4 +
           k / 16 % 4;
}

// Byte inside the atom of the scale of `row` (0..127) and scale block `block` (0..3).
WAGMI_HD int scale_in_atom(int row, int block) { return row % 32 * 16 + row / 32 * 4 + block; }

// ---- portable paths -------------------------------------------------------------------------------------
//
// A dot product may sum in any order, so K is permuted inside a slab such that one thread of the tensor core
// fragment finds all its 16 elements of a row in ONE scale block, 8 contiguous bytes: thread t (0..3) of a
// row owns block t. Step s (0..3) is one k16 instruction; in it thread t holds two pairs h (0, 1). The pair
// (s, h) is made of the nibbles i and i + 4 of 32-bit word u of the block, u = s / 2, i = 2 * (s % 2) + h,
// since those two come out of one shift and one mask.

// Element (0..63) that stands at fragment position `p` (0..63) of the permuted slab.
WAGMI_HD int element_at(int p) {
    int s = p / 16, h = p % 16 / 8, t = p % 8 / 2, high = p % 2;
    return 16 * t + 8 * (s / 2) + 2 * (s % 2) + h + 4 * high;
}

// The sm_90 path takes two slabs at a time and pairs them, so that a thread's codes of both are 16 contiguous bytes:
// thread t owns blocks 2t and 2t + 1 of the eight, the first in the even slab, the second in the odd one.

// Element (0..127) of a pair of slabs that stands at position `p` (0..63) of the slab `half` (0, 1).
WAGMI_HD int element_at_paired(int half, int p) {
    int element = element_at(p);
    return 16 * (2 * (element / 16) + half) + element % 16;
}

// The workspace holds tokens as f16, tile by tile, [slab][row][128 bytes], each row's eight 16-byte chunks
// swizzled as the tensor core's 128-byte mode wants them in shared memory: a tile is then copied as it is.
WAGMI_HD int swizzled_chunk(int row, int chunk) { return chunk ^ (row & 7); }

// wgmma matrix descriptor for a K-major operand with 128-byte swizzle: start address, leading offset (unused
// with this swizzle), stride of 8 rows = 1024 bytes, layout 1 at bit 62. The next k16 step is 32 bytes on.
WAGMI_HD constexpr uint64_t wgmma_descriptor(uint32_t shared_address) {
    return (uint64_t)((shared_address & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

// ---- sm_100 ---------------------------------------------------------------------------------------------

constexpr int M_TILE = 128;          // weights, on the MMA's M
constexpr int K_TILE = 256;          // elements of a stage: 128 bytes of a packed row, one swizzle row
constexpr int K_STEP = 64;           // elements of one MMA
constexpr int STEPS = K_TILE / K_STEP;
constexpr int N_MOST = 224;          // tokens, on N: two accumulators and the scales fit 512 columns
constexpr int TMEM_COLUMNS = 512;

// tcgen05 shared-memory descriptor of packed FP4, K-major, 128-byte swizzle: leading field 1, stride 1024
// bytes, version 1 at bit 46, layout 2 (128-byte swizzle) at bit 61.
WAGMI_HD uint64_t operand_descriptor(uint32_t shared_address) {
    return 0x4000404000010000ull | ((shared_address & 0x3ffff) >> 4);
}
// One K = 64 step of packed FP4 is 32 bytes.
constexpr uint64_t OPERAND_STEP = 32 >> 4;

// The same for scales that tcgen05.cp takes: no swizzle, stride 128 bytes.
WAGMI_HD uint64_t scale_descriptor(uint32_t shared_address) {
    return 0x0000400800010000ull | ((shared_address & 0x3ffff) >> 4);
}

// Instruction descriptor: E2M1 x E2M1, E4M3 scales, both K-major, M = 128, or 256 over two blocks.
WAGMI_HD uint32_t instruction_descriptor(int n, int m = M_TILE) {
    return 1u << 7 | 1u << 10 | (uint32_t)(n >> 3) << 17 | (uint32_t)(m >> 4) << 24;
}

// Columns of tensor memory: accumulator 0, accumulator 1, scales of weights, scales of tokens. An atom of
// 512 bytes takes 4 columns (32 lanes x 16 bytes, the same in all four lane quarters).
constexpr int ATOM_COLUMNS = 4;
WAGMI_HD int accumulator_column(int stage) { return stage * N_MOST; }
WAGMI_HD int weight_scale_column(int step) { return 2 * N_MOST + ATOM_COLUMNS * step; }
// Tokens beyond 128 have atoms of their own, beside those of the first 128 in the same step.
WAGMI_HD int token_scale_column(int step, int half) {
    return 2 * N_MOST + ATOM_COLUMNS * STEPS + 2 * ATOM_COLUMNS * step + ATOM_COLUMNS * half;
}
static_assert(2 * N_MOST + ATOM_COLUMNS * STEPS * 3 <= TMEM_COLUMNS, "tensor memory has 512 columns");

// Byte of packed FP4 (row, byte of the 128) in a stage: what TMA's 128-byte swizzle makes of a row.
WAGMI_HD int swizzled_byte(int row, int byte) { return row * 128 + ((byte >> 4) ^ (row & 7)) * 16 + (byte & 15); }

} // namespace wagmi
