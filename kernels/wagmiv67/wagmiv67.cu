// wagmiv67: C = A B^T for groups of NVFP4 matrices (E2M1 codes, an E4M3 scale for each 16 along K), f16 out.
//
// rgpu_prepare looks at the sizes, plans who computes what (schedule.h) and makes tensor maps; it reads no data.
// rgpu_launch is what counts: decode the tokens, then the product on the path that this GPU has.
//
//   sm_100a, sm_103a  blackwell.cuh  the tensor core multiplies FP4 and applies the scales itself
//                     pair.cuh       the same with two blocks for each MMA
//   sm_90a            hopper.cuh     weights decoded into wgmma's registers
//   sm_80 and later   mma.cuh        mma.sync
//
// WAGMIV67_PATH in the environment, or -DWAGMI_PATH=PATH_... when compiling, takes another one: `mma` anywhere, `pair` and
// `aligned` (built as CUTLASS's example is, to compare with) where sm_100a's are.
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "aligned.cuh"
#include "blackwell.cuh"
#include "hopper.cuh"
#include "mma.cuh"
#include "pair.cuh"
#include "reference.cuh"
#include "rgpu.h"
#include "schedule.h"
#include "tokens.cuh"

using namespace wagmi;

// What the device code in this file was compiled for: its own architecture's instructions, or none.
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
__device__ int built_for = 100;
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ int built_for = 90;
#else
__device__ int built_for = 80;
#endif

// Order of arguments and variables in kernel.toml.
enum { ARG_A, ARG_B, ARG_SFA, ARG_SFB, ARG_C, VAR_M = 0, VAR_N, VAR_K, VAR_L };

// Returned for sizes that the contract does not have, for an architecture that cannot run here, and for a path that is
// not there.
enum { BAD_SIZES = 10001, NO_TENSOR_MAPS = 10002, NO_SUCH_PATH = 10003 };

enum Path { PATH_OF_GPU = 0, PATH_MMA = 80, PATH_HOPPER = 90, PATH_BLACKWELL = 100, PATH_PAIR = 200, PATH_ALIGNED = 201 };

#ifndef WAGMI_PATH
#define WAGMI_PATH PATH_OF_GPU
#endif

#define TRY(call)                                                                                                  \
    do {                                                                                                           \
        cudaError_t status_ = (call);                                                                              \
        if (status_ != cudaSuccess) return status_;                                                                \
    } while (0)

// One of the l products of a group.
struct Product {
    Matrices matrices;
    Shape shape;
};

struct State {
    int path;
    std::vector<Shape> shapes;
    Operands operands;
    std::vector<void *> allocations;
    // Portable paths.
    DeviceTile *tiles;
    int tile_count, slabs_most, row_parts;
    DevicePiece *pieces;
    int piece_count;
    // sm_90a and sm_100a.
    int blocks;
    hopper::Kernel hopper_kernel;
    hopper::Maps hopper_maps;
    hopper::Work hopper_work;
    blackwell::Maps blackwell_maps;
    blackwell::Work blackwell_work;
    pair::Maps pair_maps;
    pair::SwappedWork pair_work;
    pair::AlignedWork aligned_work;
};

static cudaError_t allocate(State *state, void **pointer, size_t bytes) {
    TRY(cudaMalloc(pointer, bytes ? bytes : 1));
    state->allocations.push_back(*pointer);
    return cudaSuccess;
}

template <typename T> static cudaError_t upload(State *state, const std::vector<T> &from, T **to) {
    void *pointer;
    TRY(allocate(state, &pointer, from.size() * sizeof(T)));
    *to = (T *)pointer;
    return cudaMemcpy(pointer, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
}

static int products_of(const rgpu_case *problem, std::vector<Product> *products) {
    for (uint32_t g = 0; g < problem->groups; g++) {
        int64_t m = rgpu_size(problem, g, VAR_M), n = rgpu_size(problem, g, VAR_N), k = rgpu_size(problem, g, VAR_K);
        int64_t l = rgpu_size(problem, g, VAR_L);
        // What the contract promises, and 32-bit indices.
        if (m < 1 || n < 1 || k < 1 || n % 128 || k % 256 || m > 65535 || n > 1 << 20 || k > 1 << 20)
            return BAD_SIZES;
        for (int64_t i = 0; i < l; i++) {
            auto part = [&](int arg) { return (uint8_t *)rgpu_arg(problem, g, arg)->data + rgpu_arg(problem, g, arg)->bytes / l * i; };
            Shape shape = {(int)m, (int)n, (int)k};
            products->push_back({{part(ARG_A), part(ARG_SFA), part(ARG_B), part(ARG_SFB), (__half *)part(ARG_C)}, shape});
        }
    }
    return products->empty() || products->size() > MOST_PROBLEMS ? BAD_SIZES : 0;
}

typedef CUresult (*EncodeTiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static int tensor_map(CUtensorMap *map, const void *data, const pair::MapShape &shape) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
#else
    TRY(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
    if (!found) return NO_TENSOR_MAPS;
    cuuint64_t dims[2] = {(cuuint64_t)shape.width, (cuuint64_t)shape.height}, strides[1] = {(cuuint64_t)shape.stride};
    cuuint32_t box[2] = {(cuuint32_t)shape.box_width, (cuuint32_t)shape.box_height}, steps[2] = {1, 1};
    CUtensorMapDataType type = shape.element == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                               : shape.element == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                    : CU_TENSOR_MAP_DATA_TYPE_UINT64;
    CUtensorMapSwizzle swizzle = shape.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : shape.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_NONE;
    CUresult status = ((EncodeTiled)found)(map, type, 2, (void *)data, dims, strides, box, steps,
                                           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return status == CUDA_SUCCESS ? 0 : NO_TENSOR_MAPS;
}

// Packed codes as bytes: boxes of `width` bytes x `height` rows.
static int tensor_map(CUtensorMap *map, const uint8_t *codes, int rows, int k, int width, int height, int swizzle) {
    return tensor_map(map, codes, {1, k / 2, rows, k / 2, width, height, swizzle});
}

static DevicePiece device_piece(const State *state, const Schedule &plan, const Piece &piece, const uint8_t *decoded) {
    const TokenTile &tile = plan.tiles[piece.tile];
    const Shape &shape = state->shapes[tile.problem];
    return {decoded + tile.workspace, tile.problem, piece.row_block, tile.first, tile.count,
            tile.n, shape.n, shape.k, piece.slab_begin, piece.slab_end, piece.slot, piece.first_slot,
            piece.slots};
}

// The tokens' workspace and the table of the first kernel.
static cudaError_t prepare_tokens(State *state, const Schedule &plan, uint8_t **decoded) {
    void *workspace;
    TRY(allocate(state, &workspace, plan.workspace_bytes));
    *decoded = (uint8_t *)workspace;
    std::vector<DeviceTile> tiles;
    for (const TokenTile &tile : plan.tiles) {
        tiles.push_back({*decoded + tile.workspace, tile.problem, tile.first, tile.count, tile.n, tile.slabs,
                         state->shapes[tile.problem].k});
        state->slabs_most = std::max(state->slabs_most, tile.slabs);
        state->row_parts = std::max(state->row_parts, ceil_div(tile.n, TOKEN_ROWS));
    }
    state->tile_count = (int)tiles.size();
    return upload(state, tiles, &state->tiles);
}

static cudaError_t upload_pieces(State *state, const Schedule &plan, const uint8_t *decoded) {
    std::vector<DevicePiece> pieces;
    for (const Piece &piece : plan.pieces) pieces.push_back(device_piece(state, plan, piece, decoded));
    state->piece_count = (int)pieces.size();
    return upload(state, pieces, &state->pieces);
}

static int prepare_mma(State *state) {
    const std::vector<Shape> &shapes = state->shapes;
    // One block a tile: as many workers as there are tiles of a uniform cut, each with its own.
    Schedule plan;
    plan.tiles = token_tiles(shapes, {16, 32, 48, mma::TOKENS}, &plan.workspace_bytes);
    for (int t = 0; t < (int)plan.tiles.size(); t++) {
        int rows = shapes[plan.tiles[t].problem].n / mma::ROWS;
        for (int r = 0; r < rows; r++) plan.pieces.push_back({t, r, 0, plan.tiles[t].slabs, -1, 0, 0});
    }
    uint8_t *decoded;
    TRY(prepare_tokens(state, plan, &decoded));
    return upload_pieces(state, plan, decoded);
}

static int prepare_hopper(State *state) {
    const std::vector<Shape> &shapes = state->shapes;
    Schedule plan;
    int clusters = 0;
    for (const hopper::Family &family : hopper::FAMILIES) {
        TRY(cudaFuncSetAttribute(family.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, hopper::SHARED_BYTES));
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(hopper::CLUSTER);
        config.blockDim = dim3(hopper::THREADS);
        config.dynamicSmemBytes = hopper::SHARED_BYTES;
        TRY(cudaOccupancyMaxActiveClusters(&clusters, family.kernel, &config));
        if (clusters < 1) return cudaErrorLaunchOutOfResources;
#if WAGMI_STEP < 2
        Schedule candidate = stream_k(shapes, hopper::ROW_BLOCK, family.sizes, clusters);
#else
        Schedule candidate = best_plan(shapes, hopper::ROW_BLOCK, family.sizes, clusters);
#endif
        if (!state->hopper_kernel || candidate.cycles < plan.cycles) {
            plan = candidate;
            state->hopper_kernel = family.kernel;
        }
    }
    uint8_t *decoded;
    TRY(prepare_tokens(state, plan, &decoded));
    TRY(upload_pieces(state, plan, decoded));
    int *first_piece;
    TRY(upload(state, plan.first_piece, &first_piece));
    void *slots, *flags;
    size_t slot_bytes = (size_t)clusters * hopper::SLOT_FLOATS * sizeof(float);
    TRY(allocate(state, &slots, slot_bytes));
    TRY(cudaMemset(slots, 0, slot_bytes));
    size_t flag_bytes = (size_t)clusters * hopper::FLAGS_PER_SLOT * sizeof(uint32_t);
    TRY(allocate(state, &flags, flag_bytes));
    TRY(cudaMemset(flags, 0, flag_bytes));
    state->blocks = clusters * hopper::CLUSTER;
    state->hopper_work = {state->pieces, first_piece, (float *)slots, (uint32_t *)flags};
    return cudaSuccess;
}

static int prepare_blackwell(State *state) {
    const std::vector<Shape> &shapes = state->shapes;
    TRY(cudaFuncSetAttribute(blackwell::wagmi_blackwell, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             blackwell::SHARED_BYTES));
    int device, processors;
    TRY(cudaGetDevice(&device));
    TRY(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    Schedule plan = whole_tiles(shapes, processors);
    std::vector<blackwell::DeviceTile> tiles;
    for (const Piece &piece : plan.pieces) {
        const TokenTile &tokens = plan.tiles[piece.tile];
        const Shape &shape = shapes[tokens.problem];
        tiles.push_back({tokens.problem, piece.row_block * M_TILE, tokens.first, tokens.count, tokens.n, shape.n, shape.k});
    }
    blackwell::DeviceTile *on_device;
    int *first_tile;
    TRY(upload(state, tiles, &on_device));
    TRY(upload(state, plan.first_piece, &first_tile));
    state->blocks = processors;
    state->blackwell_work = {on_device, first_tile};
    return cudaSuccess;
}

template <class Kernel> static cudaError_t pair_clusters(Kernel kernel, int threads, int bytes, int *clusters) {
    TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(pair::BLOCKS);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    TRY(cudaOccupancyMaxActiveClusters(clusters, kernel, &config));
    return *clusters < 1 ? cudaErrorLaunchOutOfResources : cudaSuccess;
}

static int prepare_pair(State *state) {
    const std::vector<Shape> &shapes = state->shapes;
    int clusters;
    TRY(pair_clusters(pair::wagmi_pair, pair::SWAPPED_THREADS, pair::SWAPPED_BYTES, &clusters));
    Schedule plan = split_tiles(shapes, clusters, pair::ROW_BLOCK);
    std::vector<pair::Tile> tiles = pair_tiles(shapes, plan);
    pair::Tile *on_device;
    int *first_tile;
    TRY(upload(state, tiles, &on_device));
    TRY(upload(state, plan.first_piece, &first_tile));
    void *slots, *flags;
    TRY(allocate(state, &slots, (size_t)clusters * pair::SLOT_FLOATS * sizeof(float)));
    size_t flag_bytes = (size_t)clusters * pair::FLAGS_PER_SLOT * sizeof(uint32_t);
    TRY(allocate(state, &flags, flag_bytes));
    TRY(cudaMemset(flags, 0, flag_bytes));
    state->blocks = clusters * pair::BLOCKS;
    state->pair_work = {on_device, first_tile, (float *)slots, (uint32_t *)flags};
    return cudaSuccess;
}

static int prepare_aligned(State *state) {
    int clusters;
    TRY(pair_clusters(pair::wagmi_aligned, pair::ALIGNED_THREADS, pair::ALIGNED_BYTES, &clusters));
    state->aligned_work.problems = (int)state->shapes.size();
    for (size_t i = 0; i < state->shapes.size(); i++)
        state->aligned_work.of[i] = {state->shapes[i].m, state->shapes[i].n, state->shapes[i].k};
    state->blocks = clusters * pair::BLOCKS;
    return cudaSuccess;
}

// The maps of one problem: weights are the M side of `pair`, the N side of `aligned`.
static int place_pair(State *state, int problem, const Matrices &matrices, const Shape &shape) {
    bool aligned = state->path == PATH_ALIGNED;
    const void *data[pair::OPERANDS];
    pair::MapShape maps[pair::OPERANDS];
    data[pair::M_CODES] = aligned ? matrices.a : matrices.b, data[pair::N_CODES] = aligned ? matrices.b : matrices.a;
    data[pair::M_SCALES] = aligned ? matrices.sfa : matrices.sfb, data[pair::N_SCALES] = aligned ? matrices.sfb : matrices.sfa;
    data[pair::OUTPUT] = matrices.c;
    pair::map_shapes(aligned, shape.m, shape.n, shape.k, maps);
    for (int i = 0; i < pair::OPERANDS; i++) {
        int status = tensor_map(&state->pair_maps.of[problem][i], data[i], maps[i]);
        if (status) return status;
    }
    return 0;
}

// Where the data lie: pointers and tensor maps, which a launch takes along.
static int place(State *state, const std::vector<Product> &products) {
    for (size_t i = 0; i < products.size(); i++) {
        const Matrices &matrices = state->operands.of[i] = products[i].matrices;
        const Shape &shape = state->shapes[i];
        int status = 0;
        if (state->path == PATH_HOPPER)
            status = tensor_map(&state->hopper_maps.weights[i], matrices.b, shape.n, shape.k, hopper::WEIGHT_ROW,
                                hopper::ROWS, 0);
        if (state->path == PATH_PAIR || state->path == PATH_ALIGNED) status = place_pair(state, (int)i, matrices, shape);
        if (state->path == PATH_BLACKWELL) {
            status = tensor_map(&state->blackwell_maps.weights[i], matrices.b, shape.n, shape.k, K_TILE / 2, M_TILE,
                                128);
            if (!status)
                status = tensor_map(&state->blackwell_maps.tokens[i], matrices.a, shape.m, shape.k, K_TILE / 2,
                                    blackwell::TOKEN_BOX, 128);
        }
        if (status) return status;
    }
    return 0;
}

// What the GPU has, or what was asked for.
static int choose_path(State *state) {
    TRY(cudaMemcpyFromSymbol(&state->path, built_for, sizeof(int)));
    int path = WAGMI_PATH;
    if (const char *asked = getenv("WAGMIV67_PATH")) {
        path = !strcmp(asked, "mma") ? PATH_MMA : !strcmp(asked, "pair") ? PATH_PAIR : !strcmp(asked, "aligned") ? PATH_ALIGNED : -1;
    }
    if (path == PATH_OF_GPU || path == state->path) return 0;
    bool there = path == PATH_MMA || ((path == PATH_PAIR || path == PATH_ALIGNED) && state->path == PATH_BLACKWELL);
    if (!there) return NO_SUCH_PATH;
    state->path = path;
    return 0;
}

int rgpu_prepare(const rgpu_case *problem, void **out) {
    State *state = new State();
    *out = state;
    std::vector<Product> products;
    int status = products_of(problem, &products);
    if (status) return status;
    for (const Product &product : products) state->shapes.push_back(product.shape);
    status = choose_path(state);
    if (!status) status = place(state, products);
    if (status) return status;
    switch (state->path) {
    case PATH_PAIR: return prepare_pair(state);
    case PATH_ALIGNED: return prepare_aligned(state);
    case PATH_BLACKWELL: return prepare_blackwell(state);
    case PATH_HOPPER: return prepare_hopper(state);
    default: return prepare_mma(state);
    }
}

// The plan holds sizes and addresses, nothing of the data.
extern "C" RGPU_EXPORT int rgpu_refresh(void *) { return 0; }

// New data of the same sizes: no allocation, no copy. popcorn.py calls it before each launch.
extern "C" RGPU_EXPORT int wagmi_place(void *opaque, const rgpu_case *problem) {
    State *state = (State *)opaque;
    std::vector<Product> products;
    int status = products_of(problem, &products);
    if (status) return status;
    if (products.size() != state->shapes.size()) return BAD_SIZES;
    for (size_t i = 0; i < products.size(); i++)
        if (memcmp(&products[i].shape, &state->shapes[i], sizeof(Shape))) return BAD_SIZES;
    return place(state, products);
}

static cudaError_t launch_hopper(const State *state, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(state->blocks);
    config.blockDim = dim3(hopper::THREADS);
    config.dynamicSmemBytes = hopper::SHARED_BYTES;
    config.stream = stream;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, state->hopper_kernel, state->hopper_maps, state->operands, state->hopper_work);
}

int rgpu_launch(void *opaque, cudaStream_t stream) {
    const State *state = (const State *)opaque;
    if (state->path == PATH_PAIR) {
        pair::wagmi_pair<<<state->blocks, pair::SWAPPED_THREADS, pair::SWAPPED_BYTES, stream>>>(state->pair_maps,
                                                                                                state->pair_work);
        return cudaGetLastError();
    }
    if (state->path == PATH_ALIGNED) {
        pair::wagmi_aligned<<<state->blocks, pair::ALIGNED_THREADS, pair::ALIGNED_BYTES, stream>>>(state->pair_maps,
                                                                                                   state->aligned_work);
        return cudaGetLastError();
    }
    if (state->path == PATH_BLACKWELL) {
        blackwell::wagmi_blackwell<<<state->blocks, blackwell::THREADS, blackwell::SHARED_BYTES, stream>>>(
            state->blackwell_maps, state->operands, state->blackwell_work);
        return cudaGetLastError();
    }
    dim3 grid(state->slabs_most, state->tile_count, state->row_parts);
    if (state->path == PATH_HOPPER)
        wagmi_tokens<true><<<grid, TOKEN_THREADS, 0, stream>>>(state->operands, state->tiles);
    else
        wagmi_tokens<false><<<grid, TOKEN_THREADS, 0, stream>>>(state->operands, state->tiles);
    TRY(cudaGetLastError());
    if (state->path == PATH_HOPPER) return launch_hopper(state, stream);
    mma::wagmi_mma<<<state->piece_count, mma::THREADS, mma::SHARED_BYTES, stream>>>(state->operands, state->pieces);
    return cudaGetLastError();
}

void rgpu_finish(void *opaque) {
    State *state = (State *)opaque;
    if (state) {
        for (void *allocation : state->allocations) cudaFree(allocation);
        delete state;
    }
}

// [reference] device: the same products, slowly.
extern "C" RGPU_EXPORT int wagmi_reference(const rgpu_case *problem, cudaStream_t stream) {
    std::vector<Product> products;
    int status = products_of(problem, &products);
    if (status) return status;
    for (const Product &product : products) {
        const Matrices &p = product.matrices;
        const Shape &shape = product.shape;
        dim3 grid(ceil_div(shape.n, 128), shape.m);
        wagmi_reference_kernel<<<grid, 128, 0, stream>>>(p.a, p.b, p.sfa, p.sfb, p.c, shape.m, shape.n, shape.k);
        TRY(cudaGetLastError());
    }
    return 0;
}
