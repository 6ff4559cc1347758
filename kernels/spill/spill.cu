// A 64-point Walsh-Hadamard transform per thread, with a mistake to find: register spills.
//
// All 64 values are live through all six stages, and kernel.toml caps the registers of a thread at 32. What
// does not fit goes to local memory, that is, device memory behind the caches: the compiler's report says
// how many bytes, and the profile shows the traffic. Without the cap nothing spills.
#define POINTS 64

// x and y are POINTS x n: neighbouring threads read neighbouring columns.
extern "C" __global__ void spill(const float *x, float *y, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= n) {
        return;
    }
    float value[POINTS];
#pragma unroll
    for (int i = 0; i < POINTS; i++) {
        value[i] = x[(size_t)i * n + column];
    }
#pragma unroll
    for (int half = 1; half < POINTS; half *= 2) {
#pragma unroll
        for (int i = 0; i < POINTS; i++) {
            if ((i & half) == 0) {
                float low = value[i];
                float high = value[i + half];
                value[i] = low + high;
                value[i + half] = low - high;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < POINTS; i++) {
        y[(size_t)i * n + column] = value[i];
    }
}
