// Renders a bank of voices that has been on air for ten minutes.
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

constexpr int kVoices = 4096, kSamples = 16384;
constexpr double kRate = 48000.0, kTau = 6.283185307179586;

__global__ void render(const double* freq, float* out, double start) {
  int s = blockIdx.x * blockDim.x + threadIdx.x, v = blockIdx.y;
  double turns = freq[v] * (start + s / kRate);
  float x = (float)(kTau * turns);
  float y = sinf(x) + 0.5f * sinf(2.f * x);
  out[(size_t)v * kSamples + s] = y;
}

__global__ void power(const float* v, size_t n, double* out) {
  double s = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    s += (double)v[i] * v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

int main() {
  const size_t n = (size_t)kVoices * kSamples;
  const int steps = 800;
  std::vector<double> host(kVoices);
  for (int v = 0; v < kVoices; ++v) host[v] = 220.0 + 660.0 * std::fmod(v * 0.6180339887, 1.0);
  double *freq, *sum, check;
  float* out;
  OK(cudaMalloc(&freq, kVoices * sizeof(double)));
  OK(cudaMalloc(&out, n * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMemset(sum, 0, sizeof(double)));
  OK(cudaMemcpy(freq, host.data(), kVoices * sizeof(double), cudaMemcpyHostToDevice));
  auto step = [&](int k) {
    render<<<dim3(kSamples / 256, kVoices), 256>>>(freq, out, 600.0 + k * kSamples / kRate);
  };

  for (int k = 0; k < 5; ++k) step(k);
  OK(cudaDeviceSynchronize());
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step(k);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;

  power<<<264, 256>>>(out, n, sum);
  OK(cudaMemcpy(&check, sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("check %.2f\n", std::sqrt(check / n));
  std::printf("step_ms %.4f\n", ms);
}
