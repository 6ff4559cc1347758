// The sm_90a path: weights from FP4 in registers straight into wgmma, tokens as f16 from shared memory.
//
// Two blocks of a cluster take 128 rows of weights each and share the tokens: each fetches half of a token
// slab and multicasts it to both, which halves the traffic from L2 that would otherwise bound the kernel. In
// a block, one warp fetches weights and scales (deep ring: they come from device memory), one fetches tokens
// (from L2), and two warpgroups decode and multiply, 64 rows each. While a warpgroup's four wgmma of one slab
// run, it decodes its weights of the next; while it waits, the other one's keep the tensor cores busy.
//
// Work is split by stream-K (schedule.h), so that all 132 SMs end together whatever the groups' sizes.
#pragma once
#include <vector>

#include "async.cuh"
#include "decode.cuh"
#include "layout.h"
#include "pieces.cuh"
#include "wgmma.cuh"

namespace wagmi {

namespace hopper {

constexpr int ROWS = 128;          // of weights, per block
constexpr int CLUSTER = 2;
constexpr int ROW_BLOCK = ROWS * CLUSTER;
constexpr int N_LARGEST = 192;
constexpr int TOKEN_STAGES = 6, TOKEN_BYTES = N_LARGEST * 128;
constexpr int WEIGHT_STAGES = 14, WEIGHT_BYTES = ROWS * SLAB_FP4_BYTES;
constexpr int CONSUMERS = 2;       // warpgroups
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int TURN_BYTES = 512;    // a warp's 16 x 16 outputs on their way

struct Shared {
    uint8_t tokens[TOKEN_STAGES][TOKEN_BYTES];
    uint8_t weights[WEIGHT_STAGES][WEIGHT_BYTES];
    uint8_t scales[WEIGHT_STAGES][SCALE_ATOM];
    uint8_t turn[4 * CONSUMERS][TURN_BYTES];
    uint64_t tokens_full[TOKEN_STAGES], tokens_empty[TOKEN_STAGES];
    uint64_t weights_full[WEIGHT_STAGES], weights_empty[WEIGHT_STAGES];
};
constexpr int SHARED_BYTES = sizeof(Shared) + 1024; // its start is aligned by hand
static_assert(SHARED_BYTES <= 227 * 1024, "a block has 227 KiB at most");

// Floats of a slot: the accumulators of both blocks' warpgroups at the largest N.
constexpr int64_t SLOT_FLOATS = (int64_t)ROW_BLOCK * N_LARGEST;
constexpr int FLAGS_PER_SLOT = CLUSTER * CONSUMERS;

struct Maps {
    CUtensorMap weights[MOST_PROBLEMS];
};

struct Work {
    const DevicePiece *pieces;
    const int *first_piece; // of each cluster, and the end
    float *slots;
    uint32_t *flags;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A place in a ring of stages.
template <int STAGES> struct Ring {
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// What a consumer warpgroup carries from piece to piece.
struct Consumer {
    Shared *shared;
    int warpgroup, thread; // 0 or 1; 0..127
    uint32_t rank;
    Ring<WEIGHT_STAGES> weights;
    Ring<TOKEN_STAGES> tokens, done; // next to multiply by, next to give back

    // Waits for the next slab of weights and decodes this thread's part.
    __device__ __forceinline__ void decode(uint32_t fragment[16]) {
        int stage = weights.stage;
        barrier_wait(shared_address(&shared->weights_full[stage]), weights.parity);
        int row = warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4, block = thread % 4;
        const uint8_t *codes = shared->weights[stage] + row * SLAB_FP4_BYTES + block * 8;
        uint2 low = *(const uint2 *)codes, high = *(const uint2 *)(codes + 8 * SLAB_FP4_BYTES);
        const uint8_t *scale = shared->scales[stage];
        uint32_t scales = scale_pair(scale[scale_in_atom(row, block)], scale[scale_in_atom(row + 8, block)]);
        decode_slab(low, high, scales, fragment);
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(shared_address(&shared->weights_empty[stage]));
        weights.next();
    }

    __device__ __forceinline__ void wait_for_tokens() {
        barrier_wait(shared_address(&shared->tokens_full[tokens.stage]), tokens.parity);
    }

    // Starts the four instructions of a slab.
    template <int N> __device__ __forceinline__ void multiply(Sums &sum, const uint32_t fragment[16]) {
        uint64_t descriptor = wgmma_descriptor(shared_address(shared->tokens[tokens.stage]));
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < 4; step++) Wgmma<N>::mma(sum, fragment + 4 * step, descriptor + 2 * step);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        tokens.next();
    }

    // Waits for them and gives the token stage back to both blocks.
    template <int N> __device__ __forceinline__ void finish(Sums &sum) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
        if (thread < CLUSTER) barrier_arrive_at(shared_address(&shared->tokens_empty[done.stage]), thread);
        done.next();
    }

    template <int N> __device__ __forceinline__ void multiply_all(Sums &sum, int slabs);
    template <int N> __device__ __forceinline__ void multiply_if(int n, Sums &sum, int slabs) {
        if constexpr (N > 0) {
            if (n == N) multiply_all<N>(sum, slabs);
        }
    }
    __device__ __forceinline__ void leave(const Work &work, const DevicePiece &piece, const Sums &sum);
    __device__ __forceinline__ void take(const Work &work, const DevicePiece &piece, int slot, Sums &sum);
    __device__ __forceinline__ void store(const DevicePiece &piece, const Sums &sum);
    template <int A, int B, int C, int D>
    __device__ __forceinline__ void run(const Work &work, const DevicePiece &piece);
};

// While one slab is multiplied the next is decoded. The wait for tokens stands between decoding and the wait for
// the tensor cores, so that its latency overlaps too, and because ptxas moves less of the decoding past a loop.
template <int N> __device__ __forceinline__ void Consumer::multiply_all(Sums &sum, int slabs) {
    uint32_t even[16], odd[16];
    decode(even);
    wait_for_tokens();
    for (; slabs > 2; slabs -= 2) {
        multiply<N>(sum, even);
        decode(odd);
        wait_for_tokens();
        finish<N>(sum);
        multiply<N>(sum, odd);
        decode(even);
        wait_for_tokens();
        finish<N>(sum);
    }
    multiply<N>(sum, even);
    if (slabs == 2) {
        decode(odd);
        wait_for_tokens();
        finish<N>(sum);
        multiply<N>(sum, odd);
    }
    finish<N>(sum);
}

// An unfinished sum into its slot, four values a thread at a time.
__device__ __forceinline__ void Consumer::leave(const Work &work, const DevicePiece &piece, const Sums &sum) {
    int part = rank * CONSUMERS + warpgroup;
    float4 *to = (float4 *)(work.slots + piece.slot * SLOT_FLOATS + part * (64 * N_LARGEST)) + thread;
#pragma unroll
    for (int i = 0; i < N_LARGEST / 8; i++) {
        if (8 * i >= piece.n) break;
        __stcg(to + i * 128, make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
    }
    __threadfence();
    named_barrier(1 + warpgroup, 128);
    if (thread == 0) flag_set(work.flags + piece.slot * FLAGS_PER_SLOT + part);
}

__device__ __forceinline__ void Consumer::take(const Work &work, const DevicePiece &piece, int slot, Sums &sum) {
    int part = rank * CONSUMERS + warpgroup;
    if (thread == 0) flag_take(work.flags + slot * FLAGS_PER_SLOT + part);
    named_barrier(1 + warpgroup, 128);
    const float4 *from = (const float4 *)(work.slots + slot * SLOT_FLOATS + part * (64 * N_LARGEST)) + thread;
    // Eight loads under way at once; what lies beyond the piece's tokens is added to sums that nobody stores.
#pragma unroll
    for (int first = 0; first < N_LARGEST / 8; first += 8) {
        if (8 * first >= piece.n) break;
        float4 more[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first + i < N_LARGEST / 8) more[i] = __ldcg(from + (first + i) * 128);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (first + i >= N_LARGEST / 8) continue;
            float *to = sum + 4 * (first + i);
            to[0] += more[i].x, to[1] += more[i].y, to[2] += more[i].z, to[3] += more[i].w;
        }
    }
}

// Rounds and writes: a warp turns 16 rows x 16 tokens so that a token's 16 outputs are one 32-byte sector.
__device__ __forceinline__ void Consumer::store(const DevicePiece &piece, const Sums &sum) {
    int lane = thread % 32, warp = warpgroup * 4 + thread / 32;
    int row = piece.row_block * ROW_BLOCK + rank * ROWS + warp * 16;
    if (row >= piece.rows) return;
    uint8_t *turn = shared->turn[warp];
    // Matrix lane / 8 of four: tokens 0..7 or 8..15 (lane / 16), rows 0..7 or 8..15 (lane / 8 % 2).
    uint32_t put = shared_address(turn) + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16;
    int token = lane / 2;
    __half *out = piece.out + (int64_t)(piece.first + token) * piece.rows + row + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < N_LARGEST / 16; i++) {
        if (16 * i >= piece.n) break;
        uint32_t part[4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            __half2 two =
                __floats2half2_rn(sum[8 * i + 2 * r] * WEIGHT_UNIT, sum[8 * i + 2 * r + 1] * WEIGHT_UNIT);
            part[r] = *reinterpret_cast<uint32_t *>(&two);
        }
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(put),
                     "r"(part[0]), "r"(part[1]), "r"(part[2]), "r"(part[3])
                     : "memory");
        __syncwarp();
        if (16 * i + token < piece.count) {
            *(uint4 *)(out + (int64_t)16 * i * piece.rows) = *(const uint4 *)(turn + token * 32 + lane % 2 * 16);
        }
        __syncwarp();
    }
}

template <int A, int B, int C, int D>
__device__ __forceinline__ void Consumer::run(const Work &work, const DevicePiece &piece) {
    Sums sum;
#pragma unroll
    for (int i = 0; i < N_LARGEST / 2; i++) sum[i] = 0.0f;
    int slabs = piece.slab_end - piece.slab_begin;
    multiply_if<A>(piece.n, sum, slabs);
    multiply_if<B>(piece.n, sum, slabs);
    multiply_if<C>(piece.n, sum, slabs);
    multiply_if<D>(piece.n, sum, slabs);
    if (piece.slot >= 0) {
        leave(work, piece, sum);
        return;
    }
    for (int i = 0; i < piece.slots; i++) take(work, piece, piece.first_slot + i, sum);
    store(piece, sum);
}

// One thread: weights and their scales. They do not depend on the kernel before.
__device__ __forceinline__ void fetch_weights(const Maps &maps, const Work &work, Shared *shared, int cluster,
                                              uint32_t rank) {
    Ring<WEIGHT_STAGES> ring;
    for (int p = work.first_piece[cluster]; p < work.first_piece[cluster + 1]; p++) {
        const DevicePiece piece = work.pieces[p];
        // Past the last row: the second block of a cluster repeats the first's and stores nothing.
        int row = piece.row_block * ROW_BLOCK + rank * ROWS;
        if (row >= piece.rows) row -= ROWS;
        const uint8_t *scales = piece.scales + scale_offset(row, 0, piece.k);
        for (int slab = piece.slab_begin; slab < piece.slab_end; slab++) {
            uint32_t full = shared_address(&shared->weights_full[ring.stage]);
            barrier_wait(shared_address(&shared->weights_empty[ring.stage]), ring.parity ^ 1);
            barrier_expect(full, WEIGHT_BYTES + SCALE_ATOM);
            tensor_copy(shared_address(shared->weights[ring.stage]), &maps.weights[piece.problem],
                        slab * SLAB_FP4_BYTES, row, full);
            bulk_copy(shared_address(shared->scales[ring.stage]), scales + (int64_t)slab * SCALE_ATOM, SCALE_ATOM, full);
            ring.next();
        }
    }
}

// One thread: its half of each slab of tokens, to both blocks.
__device__ __forceinline__ void fetch_tokens(const Work &work, Shared *shared, int cluster, uint32_t rank) {
    wait_for_previous_kernel();
    Ring<TOKEN_STAGES> ring;
    for (int p = work.first_piece[cluster]; p < work.first_piece[cluster + 1]; p++) {
        const DevicePiece piece = work.pieces[p];
        uint32_t half = piece.n * 64;
        for (int slab = piece.slab_begin; slab < piece.slab_end; slab++) {
            uint32_t full = shared_address(&shared->tokens_full[ring.stage]);
            barrier_wait(shared_address(&shared->tokens_empty[ring.stage]), ring.parity ^ 1);
            barrier_expect(full, 2 * half);
            bulk_copy_to_all(shared_address(shared->tokens[ring.stage]) + rank * half,
                             piece.decoded + (int64_t)slab * 2 * half + rank * half, half, full, 3);
            ring.next();
        }
    }
}

#endif

// Token tiles of A, B, C or D tokens (0: none): multiples of 16, since each block of a cluster fetches whole groups of
// 8 rows. A kernel has four sizes because ptxas adds up the registers that the sums of all sizes take, and above
// about 290 finds too few and lets each wgmma wait for itself.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WAGMI_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define WAGMI_CLUSTER // older architectures refuse the word, and never run this kernel
#endif
template <int A, int B, int C, int D>
__global__ void WAGMI_CLUSTER __launch_bounds__(THREADS, 1)
    wagmi_hopper(const __grid_constant__ Maps maps, Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t raw[];
    Shared *shared = (Shared *)(raw + ((1024 - shared_address(raw) % 1024) % 1024));
    uint32_t rank = cluster_rank();
    int cluster = blockIdx.x / CLUSTER;
    if (threadIdx.x == 0) {
        for (int i = 0; i < TOKEN_STAGES; i++) {
            barrier_init(shared_address(&shared->tokens_full[i]), 1);
            barrier_init(shared_address(&shared->tokens_empty[i]), CONSUMERS * CLUSTER);
        }
        for (int i = 0; i < WEIGHT_STAGES; i++) {
            barrier_init(shared_address(&shared->weights_full[i]), 1);
            barrier_init(shared_address(&shared->weights_empty[i]), CONSUMERS * 4);
        }
        barrier_init_done();
    }
    cluster_sync();
    int warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) fetch_weights(maps, work, shared, cluster, rank);
        if (threadIdx.x == 32) fetch_tokens(work, shared, cluster, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        Consumer me = {shared, warpgroup - 1, (int)threadIdx.x % 128, rank, {}, {}, {}};
        for (int p = work.first_piece[cluster]; p < work.first_piece[cluster + 1]; p++) {
            const DevicePiece piece = work.pieces[p];
            me.run<A, B, C, D>(work, piece);
        }
    }
    // Until the other block has stopped telling this one's barriers.
    __syncwarp();
    cluster_sync();
#endif
}

typedef void (*Kernel)(const Maps, Work);

// The kernels: which sizes of token tiles each has. rgpu_prepare takes the one that covers the tokens cheapest.
struct Family {
    Kernel kernel;
    std::vector<int> sizes; // ascending
};
static const Family FAMILIES[] = {
    {wagmi_hopper<80, 96, 128, 176>, {80, 96, 128, 176}},
    {wagmi_hopper<80, 112, 160, 176>, {80, 112, 160, 176}},
    {wagmi_hopper<0, 0, 128, 192>, {128, 192}},
};

} // namespace hopper
} // namespace wagmi
