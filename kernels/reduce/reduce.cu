// total = the sum of x, in one launch and in the same order every time.
//
// Each block writes the sum of its share; the last block to finish adds those up. Who is last is settled
// by a counter that wraps to zero by itself, so the kernel can be launched again without any clearing.
// Adding the shares in their order, and not as they arrive (atomicAdd), makes two runs equal bit for bit.
#define THREADS 256
#define MAX_BLOCKS 1024

__device__ float shares[MAX_BLOCKS];
__device__ unsigned int finished;

// The sum of one value per thread, valid in thread 0.
__device__ float block_sum(float value) {
    __shared__ float per_warp[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        per_warp[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0f;
    if (threadIdx.x == 0) {
        for (int warp = 0; warp < THREADS / 32; warp++) {
            value += per_warp[warp];
        }
    }
    __syncthreads(); // per_warp may be used again from here on
    return value;
}

extern "C" __global__ void reduce(const float *x, float *total, int n) {
    __shared__ bool last;
    float sum = 0.0f;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        sum += x[i];
    }
    sum = block_sum(sum);

    if (threadIdx.x == 0) {
        shares[blockIdx.x] = sum;
        __threadfence(); // the share must be visible before this block counts as finished
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) {
        return;
    }

    __threadfence();
    sum = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) {
        sum += shares[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *total = sum;
    }
}
