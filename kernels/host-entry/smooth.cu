// A launcher with its own set-up: y = x smoothed by a filter whose weights are made to sum to one.
//
// What depends only on the case is done once, in rgpu_prepare: the weights are scaled on the host, the
// kernel is allowed more shared memory than the 48 KiB it gets unasked, and the grid is sized to fill this
// GPU once. rgpu_launch is then a single launch, and that is what gets measured.
#include <cuda_runtime.h>

#include <vector>

#include "rgpu.h"

#define THREADS 256
#define SPAN 16384 // outputs of one round of a block

// The filter is centred: y[i] = sum over t of weights[t] * x[i + t - taps / 2], with zeros past both ends.
extern "C" __global__ void smooth(const float *x, const float *weights, float *y, int n, int taps) {
    extern __shared__ float window[]; // SPAN + taps - 1 inputs

    for (int start = blockIdx.x * SPAN; start < n; start += gridDim.x * SPAN) {
        int first = start - taps / 2;
        for (int i = threadIdx.x; i < SPAN + taps - 1; i += THREADS) {
            int from = first + i;
            window[i] = from >= 0 && from < n ? x[from] : 0.0f;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < SPAN && start + i < n; i += THREADS) {
            float sum = 0.0f;
            for (int t = 0; t < taps; t++) {
                sum += weights[t] * window[i + t];
            }
            y[start + i] = sum;
        }
        __syncthreads(); // the window is filled again in the next round
    }
}

struct State {
    const float *x;
    float *y;
    float *weights;
    int n;
    int taps;
    int blocks;
    size_t shared_bytes;
};

static cudaError_t scaled_weights(const float *raw, int taps, float **scaled) {
    std::vector<float> host(taps);
    cudaError_t status = cudaMemcpy(host.data(), raw, sizeof(float) * taps, cudaMemcpyDeviceToHost);
    if (status != cudaSuccess) {
        return status;
    }
    double sum = 0.0;
    for (float weight : host) {
        sum += weight;
    }
    for (float &weight : host) {
        weight = (float)(weight / sum);
    }
    status = cudaMalloc(scaled, sizeof(float) * taps);
    if (status != cudaSuccess) {
        return status;
    }
    return cudaMemcpy(*scaled, host.data(), sizeof(float) * taps, cudaMemcpyHostToDevice);
}

static cudaError_t blocks_for_this_gpu(size_t shared_bytes, int *blocks) {
    int device = 0;
    int processors = 0;
    int per_processor = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(smooth, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    }
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, smooth, THREADS, shared_bytes);
    }
    *blocks = processors * per_processor;
    return status;
}

int rgpu_prepare(const rgpu_case *problem, void **state) {
    State *made = new State();
    *state = made;
    made->x = (const float *)problem->args[0].data;
    made->y = (float *)problem->args[2].data;
    made->n = (int)problem->sizes[0];
    made->taps = (int)problem->sizes[1];
    made->shared_bytes = sizeof(float) * (SPAN + made->taps - 1);
    cudaError_t status = scaled_weights((const float *)problem->args[1].data, made->taps, &made->weights);
    if (status != cudaSuccess) {
        return status;
    }
    return blocks_for_this_gpu(made->shared_bytes, &made->blocks);
}

int rgpu_launch(void *state, cudaStream_t stream) {
    const State *s = (const State *)state;
    smooth<<<s->blocks, THREADS, s->shared_bytes, stream>>>(s->x, s->weights, s->y, s->n, s->taps);
    return cudaGetLastError();
}

void rgpu_finish(void *state) {
    State *s = (State *)state;
    if (s) {
        cudaFree(s->weights);
        delete s;
    }
}
