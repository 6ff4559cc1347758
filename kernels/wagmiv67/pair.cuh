// The kernel of pair.h. It has been compiled and emulated; it has never run (README.md).
#pragma once
#include "pair_machine.cuh"

namespace wagmi {
namespace pair {

struct SwappedWork {
    const Tile *tiles;
    const int *first_tile; // of each cluster, and the end
    float *slots;
    uint32_t *flags;
};

constexpr int SWAPPED_THREADS = 32 * Swapped::WARPS, SWAPPED_BYTES = Places<Swapped>::BYTES + 1024;

// Warp 0 fetches, warp 1 of the first block multiplies, warps 2 to 5 store.
extern "C" __global__ void WAGMI_PAIR __launch_bounds__(SWAPPED_THREADS, 1)
    wagmi_pair(const __grid_constant__ Maps maps, SwappedWork work) {
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
    uint32_t base = aligned_start(), memory = set_up<Swapped>(base, 1);
    int warp = threadIdx.x / 32, cluster = blockIdx.x / BLOCKS;
    TileList tiles = {work.tiles + work.first_tile[cluster], work.tiles + work.first_tile[cluster + 1]};
    Ptx<false> thread(maps, base, work.slots, work.flags);
    if (warp == 0) {
        if (elect_one()) fetch<Swapped>(thread, tiles);
    } else if (warp == 1) {
        if (cluster_rank() == 0 && elect_one()) multiply<Swapped>(thread, tiles, memory);
    } else {
        Ptx<true> whole(maps, base, work.slots, work.flags);
        store_swapped(whole, tiles, memory, warp % 4);
    }
    tear_down(memory, 1);
#endif
}

} // namespace pair
} // namespace wagmi
