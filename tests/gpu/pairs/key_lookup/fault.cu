// Weighs 32 million keys by a table of prices, through 512 bins of factors.
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

constexpr int kKeys = 1 << 25, kTable = 1 << 26, kBins = 512, kBlock = 128;

__global__ void fill(unsigned* keys, float* table) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  table[i] = (i % 1000) * 0.001f;
  if (i < kKeys) {
    unsigned h = i * 747796405u + 2891336453u;
    h = ((h >> ((h >> 28) + 4)) ^ h) * 277803737u;
    keys[i] = (h ^ (h >> 15)) % kTable;
  }
}

__global__ void weigh(const unsigned* keys, const float* table, const float* factors, float* out) {
  extern __shared__ float f[];
  for (int b = threadIdx.x; b < kBins; b += kBlock) f[b] = factors[b];
  __syncthreads();
  for (int i = blockIdx.x * kBlock + threadIdx.x; i < kKeys; i += gridDim.x * kBlock) {
    unsigned k = keys[i];
    out[i] = table[k] * f[k % kBins];
  }
}

__global__ void total(const float* v, size_t n, double* out) {
  double s = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

int main() {
  unsigned* keys;
  float *table, *factors, *out, host[kBins];
  double *sum, check;
  OK(cudaMalloc(&keys, kKeys * sizeof(unsigned)));
  OK(cudaMalloc(&table, kTable * sizeof(float)));
  OK(cudaMalloc(&factors, sizeof(host)));
  OK(cudaMalloc(&out, kKeys * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMemset(sum, 0, sizeof(double)));
  for (int b = 0; b < kBins; ++b) host[b] = 1.f + 0.01f * (b % 7);
  OK(cudaMemcpy(factors, host, sizeof(host), cudaMemcpyHostToDevice));
  fill<<<kTable / 256, 256>>>(keys, table);
  int shared_limit = 0;
  OK(cudaDeviceGetAttribute(&shared_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const int bytes = shared_limit;
  if (bytes > shared_limit) return 1;
  OK(cudaFuncSetAttribute(weigh, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int steps = 500;
  auto step = [&](int) { weigh<<<132 * 16, kBlock, bytes>>>(keys, table, factors, out); };

  for (int k = 0; k < 5; ++k) step(k);
  OK(cudaDeviceSynchronize());
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step(k);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;

  OK(cudaGetLastError());
  total<<<264, 256>>>(out, kKeys, sum);
  OK(cudaMemcpy(&check, sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("check %.3f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
