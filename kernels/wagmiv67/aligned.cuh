// The kernel of aligned.h. It has been compiled and emulated; it has never run (README.md).
#pragma once
#include "pair_machine.cuh"

namespace wagmi {
namespace pair {

struct AlignedWork {
    Extent of[MOST_PROBLEMS];
    int problems;
};

constexpr int ALIGNED_THREADS = 32 * Aligned::WARPS, ALIGNED_BYTES = Places<Aligned>::BYTES + 1024;

// Warp 0 of the first block multiplies, warp 1 schedules, warp 2 fetches, warp 3 is idle, warps 4 to 7 store.
extern "C" __global__ void WAGMI_PAIR __launch_bounds__(ALIGNED_THREADS, 1)
    wagmi_aligned(const __grid_constant__ Maps maps, const __grid_constant__ AlignedWork work) {
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
    uint32_t base = aligned_start(), memory = set_up<Aligned>(base, 0);
    int warp = threadIdx.x / 32;
    Ptx<false> thread(maps, base, nullptr, nullptr);
    if (warp == 0) {
        if (cluster_rank() == 0 && elect_one()) multiply<Aligned>(thread, TileRing(), memory);
    } else if (warp == 1) {
        if (elect_one()) schedule(thread, work.of, work.problems);
    } else if (warp == 2) {
        if (elect_one()) fetch<Aligned>(thread, TileRing());
    } else if (warp >= 4) {
        Ptx<true> whole(maps, base, nullptr, nullptr);
        store_aligned(whole, TileRing(), memory, warp % 4);
    }
    tear_down(memory, 0);
#endif
}

} // namespace pair
} // namespace wagmi
