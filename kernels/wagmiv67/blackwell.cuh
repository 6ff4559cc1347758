// The sm_100a / sm_103a path: the tensor core takes FP4 and scales as they lie in memory.
//
// Weights are the MMA's M (128 rows), tokens its N, so that ragged m costs little padding. One block an SM works
// through its list of tiles (schedule.h). Six warps:
//
//   warp 0     TMA: 256 elements of K a stage - codes of 128 weights and of the tokens, their scales
//   warp 1     tensor core: scales into tensor memory (tcgen05.cp), four K = 64 MMAs, commits
//   warps 2-5  epilogue: tensor memory -> registers -> f16 -> global, while warp 1 is at the next tile
//
// Accumulators are double-buffered in tensor memory. This path has been compiled and checked by emulation; it
// has never run (README.md).
#pragma once
#include "async.cuh"
#include "layout.h"
#include "pieces.cuh"

namespace wagmi {
namespace blackwell {

constexpr int STAGES = 4;
constexpr int TOKEN_BOX = 32; // rows of one copy of tokens; a tile takes as many as it has tokens
constexpr int WEIGHT_BYTES = M_TILE * K_TILE / 2, TOKEN_BYTES = N_MOST * K_TILE / 2;
constexpr int BLOCK_SCALES = SCALE_ATOM * STEPS; // of 128 rows and a stage: contiguous in global memory
constexpr int EPILOGUE_WARPS = 4, THREADS = 64 + 32 * EPILOGUE_WARPS;

struct Shared {
    uint8_t weights[STAGES][WEIGHT_BYTES];
    uint8_t tokens[STAGES][TOKEN_BYTES];
    uint8_t weight_scales[STAGES][BLOCK_SCALES];
    uint8_t token_scales[STAGES][2][BLOCK_SCALES];
    uint64_t full[STAGES], empty[STAGES];
    uint64_t sum_full[2], sum_empty[2];
    uint32_t tensor_memory;
};
constexpr int SHARED_BYTES = sizeof(Shared) + 1024; // its start is aligned by hand
static_assert(SHARED_BYTES <= 227 * 1024, "a block has 227 KiB at most");
static_assert(WEIGHT_BYTES % 1024 == 0 && TOKEN_BYTES % 1024 == 0, "swizzled tiles start at 1024 bytes");

struct Maps {
    CUtensorMap weights[MOST_PROBLEMS], tokens[MOST_PROBLEMS];
};

// One tile of the output, everything looked up.
struct DeviceTile {
    int problem, row;    // of weights
    int first, count, n; // tokens
    int rows, k;         // the problem's n and k
};

struct Work {
    const DeviceTile *tiles;
    const int *first_tile; // of each block, and the end
};

#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)

// 512 bytes of scales (32 rows of 16 bytes) into four columns, the same in all four quarters of the lanes.
__device__ __forceinline__ void copy_scales(uint32_t column, uint64_t from) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(column), "l"(from) : "memory");
}

__device__ __forceinline__ void multiply(uint32_t sum, uint64_t a, uint64_t b, uint32_t instruction, uint32_t sfa,
                                         uint32_t sfb, uint32_t accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], p;\n}" ::"r"(
            sum),
        "l"(a), "l"(b), "r"(instruction), "r"(sfa), "r"(sfb), "r"(accumulate)
        : "memory");
}

// Arrives at the barrier when all tensor core work of this thread so far is done.
__device__ __forceinline__ void commit(uint32_t barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}

// 32 lanes x 16 columns: lane i of the warp gets 16 tokens of its row.
__device__ __forceinline__ void load16(uint32_t from, uint32_t (&v)[16]) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
                 "%14, %15}, [%16];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]),
                   "=r"(v[8]), "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15])
                 : "r"(from));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

struct Ring {
    int stage = 0, stages;
    uint32_t parity = 0;
    __device__ explicit Ring(int stages) : stages(stages) {}
    __device__ void next() {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// One thread.
__device__ __forceinline__ void fetch(const Maps &maps, const Operands &operands, const Work &work, Shared *shared) {
    Ring ring(STAGES);
    for (int t = work.first_tile[blockIdx.x]; t < work.first_tile[blockIdx.x + 1]; t++) {
        const DeviceTile tile = work.tiles[t];
        int boxes = (tile.n + TOKEN_BOX - 1) / TOKEN_BOX, halves = (tile.n + 127) / 128;
        // Rows of scale blocks; tokens are cut at multiples of 128.
        const Matrices &matrices = operands.of[tile.problem];
        const uint8_t *weight_scales = matrices.sfb + scale_offset(tile.row, 0, tile.k);
        const uint8_t *low_scales = matrices.sfa + scale_offset(tile.first, 0, tile.k);
        const uint8_t *high_scales = matrices.sfa + scale_offset(tile.first + 128, 0, tile.k);
        uint32_t bytes = WEIGHT_BYTES + boxes * TOKEN_BOX * (K_TILE / 2) + (1 + halves) * BLOCK_SCALES;
        for (int k = 0; k < tile.k / K_TILE; k++) {
            uint32_t full = shared_address(&shared->full[ring.stage]);
            barrier_wait(shared_address(&shared->empty[ring.stage]), ring.parity ^ 1);
            barrier_expect(full, bytes);
            tensor_copy(shared_address(shared->weights[ring.stage]), &maps.weights[tile.problem], k * (K_TILE / 2),
                        tile.row, full);
            for (int i = 0; i < boxes; i++)
                tensor_copy(shared_address(shared->tokens[ring.stage]) + i * TOKEN_BOX * (K_TILE / 2),
                            &maps.tokens[tile.problem], k * (K_TILE / 2), tile.first + i * TOKEN_BOX, full);
            bulk_copy(shared_address(shared->weight_scales[ring.stage]), weight_scales + (int64_t)k * BLOCK_SCALES,
                      BLOCK_SCALES, full);
            bulk_copy(shared_address(shared->token_scales[ring.stage][0]), low_scales + (int64_t)k * BLOCK_SCALES,
                      BLOCK_SCALES, full);
            if (halves == 2)
                bulk_copy(shared_address(shared->token_scales[ring.stage][1]),
                          high_scales + (int64_t)k * BLOCK_SCALES, BLOCK_SCALES, full);
            ring.next();
        }
    }
}

// One thread: everything it issues runs in order.
__device__ __forceinline__ void multiply_tiles(const Work &work, Shared *shared, uint32_t memory) {
    Ring ring(STAGES), sums(2);
    for (int t = work.first_tile[blockIdx.x]; t < work.first_tile[blockIdx.x + 1]; t++) {
        const DeviceTile &tile = work.tiles[t];
        int steps_of_k = tile.k / K_TILE, halves = (tile.n + 127) / 128;
        uint32_t instruction = instruction_descriptor(tile.n);
        uint32_t sum = memory + accumulator_column(sums.stage);
        barrier_wait(shared_address(&shared->sum_empty[sums.stage]), sums.parity ^ 1);
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        for (int k = 0; k < steps_of_k; k++) {
            int stage = ring.stage;
            barrier_wait(shared_address(&shared->full[stage]), ring.parity);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            uint64_t a = operand_descriptor(shared_address(shared->weights[stage]));
            uint64_t b = operand_descriptor(shared_address(shared->tokens[stage]));
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                copy_scales(memory + weight_scale_column(step),
                            scale_descriptor(shared_address(shared->weight_scales[stage]) + step * SCALE_ATOM));
                for (int i = 0; i < halves; i++)
                    copy_scales(memory + token_scale_column(step, i),
                                scale_descriptor(shared_address(shared->token_scales[stage][i]) + step * SCALE_ATOM));
            }
#pragma unroll
            for (int step = 0; step < STEPS; step++)
                multiply(sum, a + step * OPERAND_STEP, b + step * OPERAND_STEP, instruction,
                         memory + weight_scale_column(step), memory + token_scale_column(step, 0), k + step > 0);
            commit(shared_address(&shared->empty[stage]));
            ring.next();
        }
        commit(shared_address(&shared->sum_full[sums.stage]));
        sums.next();
    }
}

// Four warps; each reads the 32 lanes (rows of weights) that its number allows.
__device__ __forceinline__ void store_tiles(const Operands &operands, const Work &work, Shared *shared, uint32_t memory) {
    int quarter = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    Ring sums(2);
    for (int t = work.first_tile[blockIdx.x]; t < work.first_tile[blockIdx.x + 1]; t++) {
        const DeviceTile tile = work.tiles[t];
        barrier_wait(shared_address(&shared->sum_full[sums.stage]), sums.parity);
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        uint32_t from = memory + ((uint32_t)quarter * 32 << 16) + accumulator_column(sums.stage);
        // A warp's 32 rows of one token are 64 contiguous bytes of the output.
        __half *out = operands.of[tile.problem].c + (int64_t)tile.first * tile.rows + tile.row + quarter * 32 + lane;
        for (int column = 0; column < tile.n; column += 16) {
            uint32_t values[16];
            load16(from + column, values);
#pragma unroll
            for (int i = 0; i < 16; i++)
                if (column + i < tile.count)
                    out[(int64_t)(column + i) * tile.rows] = __float2half_rn(__uint_as_float(values[i]));
        }
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&shared->sum_empty[sums.stage]));
        sums.next();
    }
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wagmi_blackwell(const __grid_constant__ Maps maps, const __grid_constant__ Operands operands, Work work) {
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
    extern __shared__ uint8_t raw[];
    Shared *shared = (Shared *)(raw + ((1024 - shared_address(raw) % 1024) % 1024));
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared_address(&shared->full[i]), 1);
            barrier_init(shared_address(&shared->empty[i]), 1);
        }
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_address(&shared->sum_full[i]), 1);
            barrier_init(shared_address(&shared->sum_empty[i]), EPILOGUE_WARPS);
        }
        barrier_init_done();
    }
    if (warp == 1) { // the warp that allocates also frees
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         shared_address(&shared->tensor_memory)),
                     "n"(TMEM_COLUMNS)
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    uint32_t memory = *(volatile uint32_t *)&shared->tensor_memory;
    if (warp == 0) {
        if (elect_one()) fetch(maps, operands, work, shared);
    } else if (warp == 1) {
        if (elect_one()) multiply_tiles(work, shared, memory);
    } else {
        store_tiles(operands, work, shared, memory);
    }
    __syncwarp();
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (warp == 1)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(memory), "n"(TMEM_COLUMNS));
#endif
}

} // namespace blackwell
} // namespace wagmi
