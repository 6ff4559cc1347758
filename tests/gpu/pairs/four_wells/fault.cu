// Four independent wells, each relaxed on a stream of its own.
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

constexpr int kWells = 4, kCells = 4096, kSweeps = 24;

__global__ void relax(const float* a, float* b, int n, int inner) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float side = 0.5f * (a[(i + 1) % n] + a[(i + n - 1) % n]);
  float x = a[i];
  for (int k = 0; k < inner; ++k) {
    x = fmaf(0.75f, x, 0.25f * side);
    x = fmaf(-1e-4f, x, x);
  }
  b[i] = x;
}

__global__ void drift(const float* a, const float* b, int n, float* total) {
  __shared__ float part[256];
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += 256) s += fabsf(a[i] - b[i]);
  part[threadIdx.x] = s;
  __syncthreads();
  for (int w = 128; w > 0; w >>= 1) {
    if (threadIdx.x < w) part[threadIdx.x] += part[threadIdx.x + w];
    __syncthreads();
  }
  if (threadIdx.x == 0) *total += part[0];
}

struct Well {
  float *now, *next, *total;
  cudaStream_t stream;
};

void step(std::vector<Well>& wells) {
  for (int s = 0; s < kSweeps; ++s) {
    for (Well& w : wells) {
      relax<<<kCells / 256, 256, 0, w.stream>>>(w.now, w.next, kCells, 20000);
      drift<<<1, 256>>>(w.now, w.next, kCells, w.total);
      std::swap(w.now, w.next);
    }
  }
}

int main() {
  std::vector<Well> wells(kWells);
  std::vector<float> host(kCells);
  for (int k = 0; k < kWells; ++k) {
    Well& w = wells[k];
    OK(cudaStreamCreate(&w.stream));
    OK(cudaMalloc(&w.now, kCells * sizeof(float)));
    OK(cudaMalloc(&w.next, kCells * sizeof(float)));
    OK(cudaMalloc(&w.total, sizeof(float)));
    OK(cudaMemset(w.total, 0, sizeof(float)));
    for (int i = 0; i < kCells; ++i) host[i] = std::sin(0.01f * i * (k + 1)) + k;
    OK(cudaMemcpy(w.now, host.data(), kCells * sizeof(float), cudaMemcpyHostToDevice));
  }
  for (int i = 0; i < 4; ++i) step(wells);
  OK(cudaDeviceSynchronize());
  const int steps = 120;
  auto t0 = Clock::now();
  for (int i = 0; i < steps; ++i) step(wells);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;
  double check = 0;
  for (Well& w : wells) {
    float t;
    OK(cudaMemcpy(&t, w.total, sizeof(float), cudaMemcpyDeviceToHost));
    check += t;
  }
  std::printf("check %.4f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
