// The plan of schedule.h as kernels read it. It depends on sizes only; where the data lie comes with each launch.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

namespace wagmi {

constexpr int MOST_PROBLEMS = 16; // groups x l of one launch

// Where the matrices of each problem lie.
struct Matrices {
    const uint8_t *a, *sfa, *b, *sfb;
    __half *c;
};
struct Operands {
    Matrices of[MOST_PROBLEMS];
};

// A piece of work, everything looked up.
struct DevicePiece {
    const uint8_t *decoded; // of the token tile
    int problem, row_block;
    int first, count, n;    // tokens
    int rows, k;            // the problem's n and k
    int slab_begin, slab_end;
    int slot, first_slot, slots;
};

} // namespace wagmi
