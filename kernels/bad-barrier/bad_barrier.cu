// Faulty on purpose: neighbouring threads swap elements, and even and odd threads wait at barriers of their
// own. Every thread does meet a barrier, but a warp must meet the same one together: synccheck. On GPUs
// since Volta it happens to work, since there each thread counts for itself.
#define THREADS 256

extern "C" __global__ void bad_barrier(const float *x, float *y, int n) {
    __shared__ float tile[THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x;
    float value = i < n ? x[i] : 0.0f;
    if (threadIdx.x % 2 == 0) {
        tile[threadIdx.x + 1] = value;
        __syncthreads(); // one barrier below both branches is what belongs here
        value = 2.0f * tile[threadIdx.x];
    } else {
        tile[threadIdx.x - 1] = value;
        __syncthreads();
        value = 3.0f * tile[threadIdx.x];
    }
    if (i < n) {
        y[i] = value;
    }
}
