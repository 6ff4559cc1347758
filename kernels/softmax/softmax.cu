// Softmax over each row: one block of 256 threads per row.
//
// Three passes over the row (largest value, sum of exponentials, result). Subtracting the largest value
// first keeps every exponential at or below one. The second and third pass mostly hit the caches, so
// device memory sees about one read and one write per element.
#define THREADS 256
#define WARPS (THREADS / 32)

__device__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ float plus(float a, float b) { return a + b; }

// Combines one value per thread over the block; every thread gets the result.
template <float (*combine)(float, float)>
__device__ float over_block(float value) {
    __shared__ float per_warp[WARPS];
    for (int offset = 16; offset > 0; offset /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    if (threadIdx.x % 32 == 0) {
        per_warp[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = per_warp[0];
    for (int warp = 1; warp < WARPS; warp++) {
        value = combine(value, per_warp[warp]);
    }
    return value;
}

extern "C" __global__ void softmax(const float *x, float *y, int cols) {
    const float *in = x + (size_t)blockIdx.x * cols;
    float *out = y + (size_t)blockIdx.x * cols;

    float largest = -3.402823466e38f;
    for (int i = threadIdx.x; i < cols; i += THREADS) {
        largest = fmaxf(largest, in[i]);
    }
    largest = over_block<larger>(largest);

    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += THREADS) {
        sum += expf(in[i] - largest);
    }
    sum = over_block<plus>(sum);

    for (int i = threadIdx.x; i < cols; i += THREADS) {
        out[i] = expf(in[i] - largest) / sum;
    }
}
