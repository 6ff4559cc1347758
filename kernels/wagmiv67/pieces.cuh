// The plan of schedule.h as kernels read it.
#pragma once
#include <cuda_fp16.h>
#include <stdint.h>

namespace wagmi {

constexpr int MOST_PROBLEMS = 16; // groups x l of one launch

// A piece of work, everything looked up.
struct DevicePiece {
    const uint8_t *scales;  // of the problem's weights
    const uint8_t *decoded; // of the token tile
    __half *out;            // C of the problem
    int problem, row_block;
    int first, count, n;    // tokens
    int rows, k;            // the problem's n and k
    int slab_begin, slab_end;
    int slot, first_slot, slots;
};

} // namespace wagmi
