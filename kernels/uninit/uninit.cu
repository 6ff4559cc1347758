// Faulty on purpose: counts bytes by value, in memory that nobody cleared. Fresh device memory is often
// zero, so this often works: initcheck. A launcher, since rgpu fills every buffer that it allocates itself.
#include <cuda_runtime.h>

#include "rgpu.h"

#define BINS 256

extern "C" __global__ void count(const unsigned char *bytes, unsigned int *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&bins[bytes[i]], 1u);
    }
}

// Hands the bins over and clears them for the next launch: only the first one finds what nobody wrote.
extern "C" __global__ void uninit(unsigned int *bins, unsigned int *out) {
    out[threadIdx.x] = bins[threadIdx.x];
    bins[threadIdx.x] = 0;
}

struct State {
    const unsigned char *bytes;
    unsigned int *out;
    unsigned int *bins;
    int n;
};

int rgpu_prepare(const rgpu_case *problem, void **state) {
    State *made = new State();
    *state = made;
    made->bytes = (const unsigned char *)problem->args[0].data;
    made->out = (unsigned int *)problem->args[1].data;
    made->n = (int)problem->sizes[0];
    return cudaMalloc(&made->bins, sizeof(unsigned int) * BINS); // cudaMemset belongs here
}

int rgpu_launch(void *state, cudaStream_t stream) {
    const State *s = (const State *)state;
    count<<<(s->n + 255) / 256, 256, 0, stream>>>(s->bytes, s->bins, s->n);
    uninit<<<1, BINS, 0, stream>>>(s->bins, s->out);
    return cudaGetLastError();
}

void rgpu_finish(void *state) {
    State *s = (State *)state;
    if (s) {
        cudaFree(s->bins);
        delete s;
    }
}
