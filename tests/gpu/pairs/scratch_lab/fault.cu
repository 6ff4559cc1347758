// Filters a volume in three passes with scratch volumes; the host reads the residual each step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

using Clock = std::chrono::steady_clock;
#define OK(call)                                                        \
  do {                                                                  \
    cudaError_t e_ = (call);                                            \
    if (e_ != cudaSuccess) {                                            \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(e_)); \
      std::exit(1);                                                     \
    }                                                                   \
  } while (0)

constexpr size_t kN = (size_t)1 << 27;

__global__ void widen(const float* in, float* out, int hop) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  out[i] = 0.5f * in[i] + 0.25f * (in[(i + hop) % kN] + in[(i + kN - hop) % kN]);
}

__global__ void differ(const float* a, const float* b, float* out) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  out[i] = fabsf(a[i] - b[i]);
}

__global__ void fill(float* v) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  v[i] = ((unsigned)i * 2654435761u >> 8) * (1.f / 16777216.f);
}

__global__ void total(const float* v, size_t n, double* out) {
  double s = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

int main() {
  const int steps = 300, grid = kN / 256;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaMemPool_t pool;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  float* volume;
  double *sum, *residual, check = 0;
  OK(cudaMalloc(&volume, kN * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMallocHost(&residual, sizeof(double)));
  fill<<<grid, 256, 0, stream>>>(volume);
  auto step = [&](int k) {
    float *a, *b, *c;
    OK(cudaMallocAsync(&a, kN * sizeof(float), stream));
    OK(cudaMallocAsync(&b, kN * sizeof(float), stream));
    OK(cudaMallocAsync(&c, kN * sizeof(float), stream));
    widen<<<grid, 256, 0, stream>>>(volume, a, 1 + k % 4);
    widen<<<grid, 256, 0, stream>>>(a, b, 64);
    differ<<<grid, 256, 0, stream>>>(a, b, c);
    OK(cudaMemsetAsync(sum, 0, sizeof(double), stream));
    total<<<1056, 256, 0, stream>>>(c, kN, sum);
    OK(cudaMemcpyAsync(residual, sum, sizeof(double), cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(a, stream));
    OK(cudaFreeAsync(b, stream));
    OK(cudaFreeAsync(c, stream));
    OK(cudaStreamSynchronize(stream));
    check += *residual;
  };

  for (int k = 0; k < 5; ++k) step(k);
  OK(cudaDeviceSynchronize());
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step(k);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;

  std::printf("check %.2f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
