// Exponential smoothing along each row of a tall table.
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

constexpr int kRows = 1 << 20, kCols = 64, kTile = 128;
constexpr int kPitch = kCols;

__global__ void fill(float* v) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = i * 747796405u + 2891336453u;
  h = ((h >> ((h >> 28) + 4)) ^ h) * 277803737u;
  v[i] = (h >> 8) * (1.f / 16777216.f);
}

__global__ void smooth(const float* in, float* out, float alpha) {
  __shared__ float tile[kTile * kPitch];
  const size_t base = (size_t)blockIdx.x * kTile * kCols;
  for (int k = threadIdx.x; k < kTile * kCols; k += kTile)
    tile[(k / kCols) * kPitch + k % kCols] = in[base + k];
  __syncthreads();
  float* row = tile + threadIdx.x * kPitch;
  float s = row[0];
  for (int c = 1; c < kCols; ++c) {
    s += alpha * (row[c] - s);
    row[c] = s;
  }
  __syncthreads();
  for (int k = threadIdx.x; k < kTile * kCols; k += kTile)
    out[base + k] = tile[(k / kCols) * kPitch + k % kCols];
}

__global__ void total(const float* v, size_t n, double* out) {
  double s = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

int main() {
  const size_t n = (size_t)kRows * kCols;
  float *a, *b;
  double *sum, check;
  OK(cudaMalloc(&a, n * sizeof(float)));
  OK(cudaMalloc(&b, n * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMemset(sum, 0, sizeof(double)));
  fill<<<n / 256, 256>>>(a);
  auto step = [&]() {
    smooth<<<kRows / kTile, kTile>>>(a, b, 0.3f);
    std::swap(a, b);
  };
  for (int k = 0; k < 5; ++k) step();
  OK(cudaDeviceSynchronize());
  const int steps = 1000;
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step();
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;
  total<<<264, 256>>>(a, n, sum);
  OK(cudaMemcpy(&check, sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("check %.3f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
