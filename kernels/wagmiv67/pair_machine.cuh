// The machine of pair.h and aligned.h that issues PTX, and what both kernels do before and after.
#pragma once
#include "aligned.h"
#include "async.cuh"
#include "pair.h"
#include "pieces.cuh"

namespace wagmi {
namespace pair {

// Of each problem, in the order of `Operand`.
struct Maps {
    CUtensorMap of[MOST_PROBLEMS][OPERANDS];
};

#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)

// A thread, or a whole warp that acts as one.
template <bool WARP> struct Ptx {
    const Maps &maps;
    uint32_t start;
    float *slots;
    uint32_t *flags;

    // Two fragments of 16 rows x 16 tokens.
    struct Fragment {
        uint32_t of[2][8];
    };
    // 64 columns of a row.
    struct Row {
        uint32_t of[64];
    };

    __device__ Ptx(const Maps &maps, uint32_t start, float *slots, uint32_t *flags)
        : maps(maps), start(start), slots(slots), flags(flags) {}

    __device__ __forceinline__ uint32_t base() { return start; }
    __device__ __forceinline__ int rank() { return (int)cluster_rank(); }
    __device__ __forceinline__ int cluster() { return blockIdx.x / BLOCKS; }
    __device__ __forceinline__ int clusters() { return gridDim.x / BLOCKS; }
    __device__ __forceinline__ bool leads() { return !WARP || threadIdx.x % 32 == 0; }

    __device__ __forceinline__ uint32_t in_first_block(uint32_t address) {
        uint32_t there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(address));
        return there;
    }
    __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) { barrier_wait(barrier, parity); }
    __device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) { barrier_expect(barrier, bytes); }
    __device__ __forceinline__ void arrive(uint32_t barrier) {
        if (WARP) __syncwarp();
        if (leads()) barrier_arrive(barrier);
    }
    __device__ __forceinline__ void arrive_at_first_block(uint32_t barrier) {
        if (WARP) __syncwarp();
        if (leads()) barrier_arrive_at(barrier, 0);
    }
    __device__ __forceinline__ void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
    __device__ __forceinline__ void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

    // A box into this block; its bytes are told to a barrier of either block of the pair.
    __device__ __forceinline__ void copy(uint32_t to, Operand operand, int problem, int x, int y, uint32_t barrier) {
        asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                     "{%3, %4}], [%2];" ::"r"(to),
                     "l"(&maps.of[problem][operand]), "r"(barrier), "r"(x), "r"(y)
                     : "memory");
    }
    // The same box into both blocks, each one's bytes told to the barrier's block.
    __device__ __forceinline__ void copy_to_both(uint32_t to, Operand operand, int problem, int x, int y, uint32_t barrier) {
        asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                     "cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                     "l"(&maps.of[problem][operand]), "r"(barrier), "r"(x), "r"(y), "h"((uint16_t)3)
                     : "memory");
    }
    // Each block's 512 bytes of scales at this place into its own tensor memory, the same in all quarters of the lanes.
    __device__ __forceinline__ void copy_scales(uint32_t column, uint64_t from) {
        asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(column), "l"(from) : "memory");
    }
    __device__ __forceinline__ void multiply(uint32_t sum, uint64_t m, uint64_t n, uint32_t instruction, uint32_t m_scales,
                                             uint32_t n_scales, uint32_t accumulate) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                     "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], "
                     "p;\n}" ::"r"(sum),
                     "l"(m), "l"(n), "r"(instruction), "r"(m_scales), "r"(n_scales), "r"(accumulate)
                     : "memory");
    }
    // Arrives at this barrier of both blocks when all tensor core work of this thread so far is done.
    __device__ __forceinline__ void commit(uint32_t barrier) {
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], "
                     "%1;" ::"r"(barrier),
                     "h"((uint16_t)3)
                     : "memory");
    }

    __device__ __forceinline__ void load(uint32_t from, Fragment &sum) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t *v = sum.of[half];
            asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7])
                         : "r"(from + (half * 16 << 16)));
        }
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
        // The registers are valid only from here on.
#pragma unroll
        for (int i = 0; i < 16; i++) asm volatile("" : "+r"(sum.of[i / 8][i % 8]));
    }
    __device__ __forceinline__ void load_row(uint32_t from, Row &sum) {
#pragma unroll
        for (int i = 0; i < 64; i += 16) {
            uint32_t *v = sum.of + i;
            asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
                         "%13, %14, %15}, [%16];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]),
                           "=r"(v[8]), "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]),
                           "=r"(v[15])
                         : "r"(from + i));
        }
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < 64; i++) asm volatile("" : "+r"(sum.of[i]));
    }

    static __device__ __forceinline__ uint32_t two(uint32_t low, uint32_t high) {
        __half2 pair = __floats2half2_rn(__uint_as_float(low), __uint_as_float(high));
        return *reinterpret_cast<uint32_t *>(&pair);
    }
    __device__ __forceinline__ void stage_turned(uint32_t buffer, int token, const Fragment &sum) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t *v = sum.of[half];
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             buffer + staged_matrix(lane, half, token)),
                         "r"(two(v[0], v[1])), "r"(two(v[2], v[3])), "r"(two(v[4], v[5])), "r"(two(v[6], v[7]))
                         : "memory");
        }
        fence_for_copies();
    }
    __device__ __forceinline__ void stage_row(uint32_t buffer, int first_row, const Row &sum) {
        int row = first_row + threadIdx.x % 32;
#pragma unroll
        for (int chunk = 0; chunk < 8; chunk++) {
            const uint32_t *v = sum.of + 8 * chunk;
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(buffer + staged_row(row, chunk)),
                         "r"(two(v[0], v[1])), "r"(two(v[2], v[3])), "r"(two(v[4], v[5])), "r"(two(v[6], v[7]))
                         : "memory");
        }
        fence_for_copies();
    }
    // What this thread wrote to shared memory is seen by the copies that start after a barrier.
    __device__ __forceinline__ void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    __device__ __forceinline__ void store(uint32_t from, Operand operand, int problem, int x, int y) {
        __syncwarp();
        if (!leads()) return;
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                         &maps.of[problem][operand]),
                     "r"(from), "r"(x), "r"(y)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    // Until the store before the last has read its buffer.
    __device__ __forceinline__ void wait_for_stores() {
        if (leads()) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STORE_BUFFERS - 1) : "memory");
        __syncwarp();
    }
    __device__ __forceinline__ void wait_for_all_stores() {
        if (leads()) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __device__ __forceinline__ void sync_epilogue() { named_barrier(1, 32 * EPILOGUE_WARPS); }

    // Sums that a later cluster adds, four values of a lane at a time.
    __device__ __forceinline__ void leave(int64_t place, const Fragment &sum) {
        uint4 *to = (uint4 *)(slots + place) + threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t *v = sum.of[i / 2] + i % 2 * 4;
            __stcg(to + i * 32, make_uint4(v[0], v[1], v[2], v[3]));
        }
    }
    __device__ __forceinline__ void take(int64_t place, Fragment &sum) {
        const float4 *from = (const float4 *)(slots + place) + threadIdx.x % 32;
        float4 more[4];
#pragma unroll
        for (int i = 0; i < 4; i++) more[i] = __ldcg(from + i * 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t *v = sum.of[i / 2] + i % 2 * 4;
            const float *w = &more[i].x;
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = __float_as_uint(__uint_as_float(v[j]) + w[j]);
        }
    }
    __device__ __forceinline__ void tell_part(int flag) {
        __threadfence();
        __syncwarp();
        if (leads()) flag_set(flags + flag);
    }
    __device__ __forceinline__ void wait_for_part(int flag) {
        if (leads()) flag_take(flags + flag);
        __syncwarp();
    }

    __device__ __forceinline__ void write_tile(uint32_t to, const NextTile &tile) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(tile.problem), "r"(tile.m_row),
                     "r"(tile.n_row), "r"(tile.k)
                     : "memory");
    }
    __device__ __forceinline__ NextTile read_tile(uint32_t from) {
        uint4 tile = load_shared16(from);
        return {(int)tile.x, (int)tile.y, (int)tile.z, (int)tile.w};
    }
};

// Barriers and tensor memory of both blocks. Returns where the memory starts.
template <class Form> __device__ __forceinline__ uint32_t set_up(uint32_t base, int allocating_warp) {
    using Place = Places<Form>;
    if (threadIdx.x == 0) {
        for (int i = 0; i < Place::BARRIERS; i++)
            barrier_init(base + Place::barrier(i, 0), Place::arrivals(i, cluster_rank()));
        barrier_init_done();
    }
    if (threadIdx.x / 32 == allocating_warp) { // in both blocks; the warp that allocates also frees
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(base + Place::MEMORY_AT),
                     "n"(TMEM_COLUMNS)
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    cluster_sync();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    uint32_t memory;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(memory) : "r"(base + Place::MEMORY_AT) : "memory");
    return memory;
}

// Neither block ends or frees while the other may still use its memory.
__device__ __forceinline__ void tear_down(uint32_t memory, int allocating_warp) {
    __syncwarp();
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    cluster_sync();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (threadIdx.x / 32 == allocating_warp)
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(memory), "n"(TMEM_COLUMNS));
}

__device__ __forceinline__ uint32_t aligned_start() {
    extern __shared__ uint8_t raw[];
    return (shared_address(raw) + 1023) / 1024 * 1024; // the same in both blocks
}

#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WAGMI_PAIR __cluster_dims__(BLOCKS, 1, 1)
#else
#define WAGMI_PAIR // older architectures refuse the word, and never run this kernel
#endif

} // namespace pair
} // namespace wagmi
