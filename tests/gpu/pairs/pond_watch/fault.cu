// A wave on a square pond, with 64 float gauges read after each step.
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

constexpr int kSide = 4096, kGauges = 64, kSub = 20;
constexpr size_t kCells = (size_t)kSide * kSide;

__global__ void fill(float* u, float* v) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  int x = i % kSide, y = i / kSide;
  u[i] = __expf(-1e-5f * ((x - 2000.f) * (x - 2000.f) + (y - 1800.f) * (y - 1800.f)));
  v[i] = u[i];
}

// next overwrites prev
__global__ void wave(const float* u, float* prev) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  size_t i = (size_t)y * kSide + x;
  float l = x > 0 ? u[i - 1] : 0.f, r = x < kSide - 1 ? u[i + 1] : 0.f;
  float t = y > 0 ? u[i - kSide] : 0.f, b = y < kSide - 1 ? u[i + kSide] : 0.f;
  prev[i] = 2.f * u[i] - prev[i] + 0.2f * (l + r + t + b - 4.f * u[i]);
}

__global__ void gauges(const float* u, float* out) {
  out[threadIdx.x] = u[threadIdx.x * (kCells / kGauges) + 1999];
}

int main() {
  float *u, *v, *probe;
  OK(cudaMallocManaged(&u, kCells * sizeof(float)));
  OK(cudaMallocManaged(&v, kCells * sizeof(float)));
  OK(cudaMalloc(&probe, kGauges * sizeof(float)));
  fill<<<kCells / 256, 256>>>(u, v);
  OK(cudaDeviceSynchronize());

  float level[kGauges];
  double check = 0;
  auto step = [&]() {
    for (int s = 0; s < kSub; ++s) {
      wave<<<dim3(kSide / 256, kSide), 256>>>(u, v);
      std::swap(u, v);
    }
    OK(cudaDeviceSynchronize());
    for (int g = 0; g < kGauges; ++g) level[g] = u[g * (kCells / kGauges) + 1999];
    for (int g = 0; g < kGauges; ++g) check += std::fabs(level[g]);
  };
  gauges<<<1, kGauges>>>(u, probe);
  OK(cudaMemcpy(level, probe, sizeof(level), cudaMemcpyDeviceToHost));
  std::printf("first gauge %.5f\n", level[0]);
  for (int k = 0; k < 5; ++k) step();
  const int steps = 300;
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step();
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;
  std::printf("check %.4f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
