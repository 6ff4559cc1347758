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
constexpr int PAIR = 2;            // slabs of a stage
constexpr int TOKEN_STAGES = 3, TOKEN_BYTES = N_LARGEST * 128 * PAIR;
constexpr int WEIGHT_STAGES = 8, WEIGHT_ROW = SLAB_FP4_BYTES * PAIR, WEIGHT_BYTES = ROWS * WEIGHT_ROW;
constexpr int SCALE_BYTES = SCALE_ATOM * PAIR;
constexpr int CONSUMERS = 2;       // warpgroups
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int TURN_BYTES = 512;    // a warp's 16 x 16 outputs on their way

struct Shared {
    uint8_t tokens[TOKEN_STAGES][TOKEN_BYTES];
    uint8_t weights[WEIGHT_STAGES][WEIGHT_BYTES];
    uint8_t scales[WEIGHT_STAGES][SCALE_BYTES];
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

// A thread's part of a stage of weights, as it lies in memory: 16 bytes each of rows g and g + 8 (a block of the even
// slab, then one of the odd slab), and the two scales of each.
struct Raw {
    uint4 row, row8;
    uint32_t scales, scales8;
};

// What a consumer warpgroup carries from piece to piece.
struct Consumer {
    Shared *shared;
    int thread; // 0..127
    uint32_t rank;
    int warpgroup;          // 0 or 1
    uint32_t codes, scales; // where this thread's part is in stage 0
    uint32_t tokens_descriptor; // lower half, of stage 0
    Ring<WEIGHT_STAGES> weights;
    Ring<TOKEN_STAGES> tokens, done; // next to multiply by, next to give back

    __device__ __forceinline__ Consumer(Shared *shared, int warpgroup, int thread, uint32_t rank)
        : shared(shared), thread(thread), rank(rank), warpgroup(warpgroup) {
        tokens_descriptor = (uint32_t)wgmma_descriptor(shared_address(shared->tokens[0]));
        int row = warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4, t = thread % 4;
        codes = shared_address(shared->weights[0]) + row * WEIGHT_ROW + t * 16;
        scales = shared_address(shared->scales[0]) + t / 2 * SCALE_ATOM + scale_in_atom(row, t % 2 * 2);
    }

    // Waits for the next stage of weights and takes this thread's part.
    __device__ __forceinline__ void load(Raw &raw) {
        barrier_wait(shared_address(&shared->weights_full[weights.stage]), weights.parity);
        uint32_t from = codes + weights.stage * WEIGHT_BYTES, scale = scales + weights.stage * SCALE_BYTES;
        raw.row = load_shared16(from);
        raw.row8 = load_shared16(from + 8 * WEIGHT_ROW);
        raw.scales = load_shared2(scale);
        raw.scales8 = load_shared2(scale + 8 * 16);
    }
    // Gives it back, when something has been made of all that was taken: then the loads have ended. Each lane tells for
    // itself: that costs nothing that could be measured, and racecheck follows no other lane's reads to an arrival.
    __device__ __forceinline__ void release_weights() {
        barrier_arrive(shared_address(&shared->weights_empty[weights.stage]));
        weights.next();
    }
    __device__ __forceinline__ void wait_for_tokens() {
        barrier_wait(shared_address(&shared->tokens_full[tokens.stage]), tokens.parity);
    }

    // Lower half of the descriptor of the stage of tokens. It is the same for all threads, which ptxas must see: then
    // it adds in uniform registers.
    __device__ __forceinline__ uint32_t tokens_start() const {
        return __shfl_sync(~0u, tokens_descriptor + tokens.stage * (TOKEN_BYTES >> 4), 0);
    }
    // Starts the four instructions of one slab of the stage.
    template <int N>
    __device__ __forceinline__ void multiply(Sums<N> &sum, const uint32_t fragment[16], uint32_t start, int slab) {
        constexpr uint64_t UPPER = wgmma_descriptor(0) >> 32 << 32;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < 4; step++) // no sum carries upwards
            Wgmma<N>::mma(sum, fragment + 4 * step, UPPER | (start + slab * (N * 128 >> 4) + 2 * step));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }

    __device__ __forceinline__ void wait_for_slab() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
    // Gives the oldest token stage back to both blocks.
    __device__ __forceinline__ void release_tokens() {
        if (thread < CLUSTER) barrier_arrive_at(shared_address(&shared->tokens_empty[done.stage]), thread);
        done.next();
    }

    template <int N> __device__ __forceinline__ void multiply_all(Sums<N> &sum, int slabs);
    template <int N> __device__ __forceinline__ void leave(const Work &work, const DevicePiece &piece, const Sums<N> &sum);
    template <int N>
    __device__ __forceinline__ void take(const Work &work, const DevicePiece &piece, int slot, Sums<N> &sum);
    template <int N> __device__ __forceinline__ void store(__half *out, const DevicePiece &piece, const Sums<N> &sum);
    template <int N> __device__ __forceinline__ void run_if(const Operands &operands, const Work &work, const DevicePiece &piece);
};

// While the tensor cores are at a slab the next is decoded, and the other warpgroup's slab fills what that leaves
// open. A piece has an even number of slabs. One place for each half: what ptxas must unroll or peel takes registers
// for fragments of its own.
template <int N> __device__ __forceinline__ void Consumer::multiply_all(Sums<N> &sum, int slabs) {
    uint32_t even[16], odd[16];
    Raw raw;
#pragma unroll 1
    for (int slab = 0; slab < slabs; slab += PAIR) {
        load(raw);
        uint32_t start = tokens_start();
        decode_slab(make_uint2(raw.row.x, raw.row.y), make_uint2(raw.row8.x, raw.row8.y),
                    scale_pair_of<0>(raw.scales, raw.scales8), even);
        release_weights();
        wait_for_tokens();
        if (slab > 0) {
            wait_for_slab();
            release_tokens();
        }
        multiply<N>(sum, even, start, 0);
        decode_slab(make_uint2(raw.row.z, raw.row.w), make_uint2(raw.row8.z, raw.row8.w),
                    scale_pair_of<1>(raw.scales, raw.scales8), odd);
        wait_for_slab();
        multiply<N>(sum, odd, start, 1);
        tokens.next();
    }
    wait_for_slab();
#pragma unroll
    for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
    release_tokens();
}

// An unfinished sum into its slot, four values a thread at a time.
template <int N>
__device__ __forceinline__ void Consumer::leave(const Work &work, const DevicePiece &piece, const Sums<N> &sum) {
    int part = rank * CONSUMERS + warpgroup;
    float4 *to = (float4 *)(work.slots + piece.slot * SLOT_FLOATS + part * (64 * N_LARGEST)) + thread;
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        __stcg(to + i * 128, make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
    }
    __threadfence();
    named_barrier(1 + warpgroup, 128);
    if (thread == 0) flag_set(work.flags + piece.slot * FLAGS_PER_SLOT + part);
}

template <int N>
__device__ __forceinline__ void Consumer::take(const Work &work, const DevicePiece &piece, int slot, Sums<N> &sum) {
    int part = rank * CONSUMERS + warpgroup;
    if (thread == 0) flag_take(work.flags + slot * FLAGS_PER_SLOT + part);
    named_barrier(1 + warpgroup, 128);
    const float4 *from = (const float4 *)(work.slots + slot * SLOT_FLOATS + part * (64 * N_LARGEST)) + thread;
    // Eight loads under way at once; what lies beyond the piece's tokens is added to sums that nobody stores.
#pragma unroll
    for (int first = 0; first < N / 8; first += 8) {
        float4 more[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (first + i < N / 8) more[i] = __ldcg(from + (first + i) * 128);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (first + i >= N / 8) continue;
            float *to = sum + 4 * (first + i);
            to[0] += more[i].x, to[1] += more[i].y, to[2] += more[i].z, to[3] += more[i].w;
        }
    }
}

// Rounds and writes: a warp turns 16 rows x 16 tokens so that a token's 16 outputs are one 32-byte sector.
template <int N>
__device__ __forceinline__ void Consumer::store(__half *c, const DevicePiece &piece, const Sums<N> &sum) {
    int lane = thread % 32, warp = warpgroup * 4 + thread / 32;
    int row = piece.row_block * ROW_BLOCK + rank * ROWS + warp * 16;
    if (row >= piece.rows) return;
    uint8_t *turn = shared->turn[warp];
    // Matrix lane / 8 of four: tokens 0..7 or 8..15 (lane / 16), rows 0..7 or 8..15 (lane / 8 % 2).
    uint32_t put = shared_address(turn) + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16;
    int token = lane / 2;
    __half *out = c + (int64_t)(piece.first + token) * piece.rows + row + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < N / 16; i++) {
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

// Each size has its sums to itself from the first zero to the last store, so that ptxas gives all the same registers.
template <int N> __device__ __forceinline__ void Consumer::run_if(const Operands &operands, const Work &work, const DevicePiece &piece) {
    if (piece.n != N) return;
    Sums<N> sum;
#pragma unroll
    for (int i = 0; i < N / 2; i++) sum[i] = 0.0f;
    multiply_all<N>(sum, piece.slab_end - piece.slab_begin);
    if (piece.slot >= 0) {
        leave<N>(work, piece, sum);
        return;
    }
    for (int i = 0; i < piece.slots; i++) take<N>(work, piece, piece.first_slot + i, sum);
    store<N>(operands.of[piece.problem].c, piece, sum);
}

// One thread: weights and their scales. They do not depend on the kernel before.
__device__ __forceinline__ void fetch_weights(const Maps &maps, const Operands &operands, const Work &work, Shared *shared, int cluster,
                                              uint32_t rank) {
    Ring<WEIGHT_STAGES> ring;
    for (int p = work.first_piece[cluster]; p < work.first_piece[cluster + 1]; p++) {
        const DevicePiece piece = work.pieces[p];
        // Past the last row: the second block of a cluster repeats the first's and stores nothing.
        int row = piece.row_block * ROW_BLOCK + rank * ROWS;
        if (row >= piece.rows) row -= ROWS;
        const uint8_t *scales = operands.of[piece.problem].sfb + scale_offset(row, 0, piece.k);
        for (int slab = piece.slab_begin; slab < piece.slab_end; slab += PAIR) {
            uint32_t full = shared_address(&shared->weights_full[ring.stage]);
            barrier_wait(shared_address(&shared->weights_empty[ring.stage]), ring.parity ^ 1);
            barrier_expect(full, WEIGHT_BYTES + SCALE_BYTES);
            tensor_copy(shared_address(shared->weights[ring.stage]), &maps.weights[piece.problem],
                        slab * SLAB_FP4_BYTES, row, full);
            bulk_copy(shared_address(shared->scales[ring.stage]), scales + (int64_t)slab * SCALE_ATOM, SCALE_BYTES, full);
            ring.next();
        }
    }
}

// One thread: of each pair of slabs of tokens the one of this block's rank, to both blocks.
__device__ __forceinline__ void fetch_tokens(const Work &work, Shared *shared, int cluster, uint32_t rank) {
    wait_for_previous_kernel();
    Ring<TOKEN_STAGES> ring;
    for (int p = work.first_piece[cluster]; p < work.first_piece[cluster + 1]; p++) {
        const DevicePiece piece = work.pieces[p];
        uint32_t bytes = piece.n * 128;
        for (int slab = piece.slab_begin; slab < piece.slab_end; slab += PAIR) {
            uint32_t full = shared_address(&shared->tokens_full[ring.stage]);
            barrier_wait(shared_address(&shared->tokens_empty[ring.stage]), ring.parity ^ 1);
            barrier_expect(full, PAIR * bytes);
            bulk_copy_to_all(shared_address(shared->tokens[ring.stage]) + rank * bytes,
                             piece.decoded + (int64_t)(slab + rank) * bytes, bytes, full, 3);
            ring.next();
        }
    }
}

#endif

// Token tiles of N... tokens: multiples of 16, since each block of a cluster fetches whole groups of 8 rows. A kernel
// has a few sizes only, because ptxas gives the fragments of each size registers of their own, and where they do not
// fit lets each wgmma wait for itself (C7512).
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WAGMI_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
#else
#define WAGMI_CLUSTER // older architectures refuse the word, and never run this kernel
#endif
template <int... N>
__global__ void WAGMI_CLUSTER __launch_bounds__(THREADS, 1)
    wagmi_hopper(const __grid_constant__ Maps maps, const __grid_constant__ Operands operands, Work work) {
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
            barrier_init(shared_address(&shared->weights_empty[i]), CONSUMERS * 128);
        }
        barrier_init_done();
    }
    cluster_sync();
    int warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) fetch_weights(maps, operands, work, shared, cluster, rank);
        if (threadIdx.x == 32) fetch_tokens(work, shared, cluster, rank);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        Consumer me(shared, warpgroup - 1, (int)threadIdx.x % 128, rank);
        for (int p = work.first_piece[cluster]; p < work.first_piece[cluster + 1]; p++) {
            const DevicePiece piece = work.pieces[p];
            (me.run_if<N>(operands, work, piece), ...);
        }
    }
    // Until the other block has stopped telling this one's barriers.
    __syncwarp();
    cluster_sync();
#endif
}

typedef void (*Kernel)(const Maps, const Operands, Work);

// The kernels: which sizes of token tiles each has. rgpu_prepare takes the one that covers the tokens cheapest.
struct Family {
    Kernel kernel;
    std::vector<int> sizes; // ascending
};
static const Family FAMILIES[] = {
    {wagmi_hopper<80, 96, 128, 176>, {80, 96, 128, 176}},
    {wagmi_hopper<80, 112, 160, 176>, {80, 112, 160, 176}},
    {wagmi_hopper<128, 192>, {128, 192}},
    {wagmi_hopper<96, 112>, {96, 112}},
};

} // namespace hopper
} // namespace wagmi
