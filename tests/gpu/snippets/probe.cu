// Prints the name of the device and the result of a warp shuffle.
#include <cstdio>

__global__ void rotate(int* out) {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, (threadIdx.x + 1) % 32);
}

int main(int argc, char** argv) {
    cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return 2;
    int* out;
    cudaMallocManaged(&out, 32 * sizeof(int));
    rotate<<<1, 32>>>(out);
    if (cudaDeviceSynchronize() != cudaSuccess) return 3;
    int wrong = 0;
    for (int i = 0; i < 32; i++) wrong += out[i] != (i + 1) % 32;
    std::printf("%s sm_%d%d: %d wrong, %d arguments\n", device.name, device.major, device.minor, wrong, argc - 1);
    return wrong != 0;
}
