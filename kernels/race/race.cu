// Faulty on purpose: each block turns its 256 elements round, through shared memory, without waiting until
// all of them are there. Whether the result is right depends on how the warps happen to run: racecheck.
#define THREADS 256

extern "C" __global__ void race(const float *x, float *y) {
    __shared__ float tile[THREADS];
    int start = blockIdx.x * THREADS;
    tile[threadIdx.x] = x[start + threadIdx.x];
    // __syncthreads() belongs here
    y[start + threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}
