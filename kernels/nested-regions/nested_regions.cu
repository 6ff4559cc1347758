// Seven launches under named NVTX ranges, to be told apart by region:
//
//     A            vector_add: s = x + y
//       A1         matrix_product: out = s * y
//     B            vector_add, five times: out = out + y
//
// The launches return at once, so the ranges close long before the kernels end: a profiler must go by the
// time of the launch, not of the kernel.
#include <cuda_runtime.h>

#include "rgpu.h"

// NVTX is header-only and part of the CUDA toolkit; without it the ranges, not the program, are gone.
#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#endif
#endif

struct Range {
#ifdef HAVE_NVTX
    explicit Range(const char *name) { nvtxRangePushA(name); }
    ~Range() { nvtxRangePop(); }
#else
    explicit Range(const char *) {}
    ~Range() {}
#endif
    Range(const Range &) = delete;
    Range &operator=(const Range &) = delete;
};

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        c[i] = a[i] + b[i];
    }
}

#define TILE 16

extern "C" __global__ void matrix_product(const float *a, const float *b, float *c, int n) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        int a_col = start + threadIdx.x;
        int b_row = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < n && a_col < n ? a[row * n + a_col] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = b_row < n && col < n ? b[b_row * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < n && col < n) {
        c[row * n + col] = sum;
    }
}

struct State {
    const float *x;
    const float *y;
    float *out;
    float *s;
    int n;
};

int rgpu_prepare(const rgpu_case *problem, void **state) {
    State *made = new State();
    made->x = (const float *)problem->args[0].data;
    made->y = (const float *)problem->args[1].data;
    made->out = (float *)problem->args[2].data;
    made->n = (int)problem->sizes[0];
    *state = made;
    return cudaMalloc(&made->s, sizeof(float) * made->n * made->n);
}

int rgpu_launch(void *state, cudaStream_t stream) {
    const State *s = (const State *)state;
    int count = s->n * s->n;
    int blocks = (count + 255) / 256;
    dim3 tiles((s->n + TILE - 1) / TILE, (s->n + TILE - 1) / TILE);
    {
        Range a("A");
        vector_add<<<blocks, 256, 0, stream>>>(s->x, s->y, s->s, count);
        {
            Range a1("A1");
            matrix_product<<<tiles, dim3(TILE, TILE), 0, stream>>>(s->s, s->y, s->out, s->n);
        }
    }
    {
        Range b("B");
        for (int i = 0; i < 5; i++) {
            vector_add<<<blocks, 256, 0, stream>>>(s->out, s->y, s->out, count);
        }
    }
    return cudaGetLastError();
}

void rgpu_finish(void *state) {
    State *s = (State *)state;
    if (s) {
        cudaFree(s->s);
        delete s;
    }
}
