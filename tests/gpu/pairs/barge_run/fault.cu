// Sends frames from host memory to the GPU and sharpens them there.
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

constexpr size_t kPixels = (size_t)1 << 22;
constexpr int kFrames = 4, kPasses = 60;

__global__ void sharpen(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i], m = 0.5f * (in[(i + 1) % n] + in[(i + n - 1) % n]);
  for (int k = 0; k < 40; ++k) v = fmaf(0.02f, __sinf(v - m), v);
  out[i] = 0.9f * v + 0.1f * m;
}

__global__ void total(const float* v, size_t n, double* out) {
  double s = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

struct Feed {
  std::vector<std::vector<float>> frames;
  Feed() : frames(kFrames, std::vector<float>(kPixels)) {
    unsigned state = 3;
    for (auto& f : frames)
      for (float& p : f) {
        state = state * 1664525u + 1013904223u;
        p = (state >> 8) * (1.f / 16777216.f);
      }
  }
  void send(int k, float* to, cudaStream_t stream) {
    std::vector<float>& f = frames[k % kFrames];
    OK(cudaHostRegister(f.data(), kPixels * sizeof(float), cudaHostRegisterDefault));
    OK(cudaMemcpyAsync(to, f.data(), kPixels * sizeof(float), cudaMemcpyHostToDevice, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaHostUnregister(f.data()));
  }
};

int main() {
  Feed feed;
  const int steps = 150, grid = kPixels / 256;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  float *a, *b;
  double *sum, check;
  OK(cudaMalloc(&a, kPixels * sizeof(float)));
  OK(cudaMalloc(&b, kPixels * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMemset(sum, 0, sizeof(double)));
  auto step = [&](int k) {
    feed.send(k, a, stream);
    for (int p = 0; p < kPasses; ++p)
      sharpen<<<grid, 256, 0, stream>>>(p % 2 ? b : a, p % 2 ? a : b, (int)kPixels);
    total<<<264, 256, 0, stream>>>(a, kPixels, sum);
  };

  for (int k = 0; k < 5; ++k) step(k);
  OK(cudaDeviceSynchronize());
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step(k);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;

  OK(cudaMemcpy(&check, sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("check %.2f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
