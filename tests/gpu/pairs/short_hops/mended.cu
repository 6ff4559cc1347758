// Spreads heat along a ring in 200 short hops; the step width follows the energy.
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

constexpr int kCells = 1 << 15, kHops = 200;

__global__ void hop(const float* a, float* b, const float* dt, int reach) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int l = (i + kCells - reach) % kCells, r = (i + reach) % kCells;
  b[i] = a[i] + *dt * (a[l] + a[r] - 2.f * a[i]);
}

__global__ void norm(const float* a, double* out) {
  __shared__ double part[1024];
  double s = 0;
  for (int i = threadIdx.x; i < kCells; i += 1024) s += (double)a[i] * a[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int w = 512; w > 0; w >>= 1) {
    if (threadIdx.x < w) part[threadIdx.x] += part[threadIdx.x + w];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = part[0];
}

struct Chain {
  float *a, *b, *dt;
  double* energy;
  cudaStream_t stream;
};

cudaGraphExec_t record(const Chain& c) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeGlobal));
  for (int h = 0; h < kHops; ++h)
    hop<<<kCells / 256, 256, 0, c.stream>>>(h % 2 ? c.b : c.a, h % 2 ? c.a : c.b, c.dt, 1 + h % 5);
  norm<<<1, 1024, 0, c.stream>>>(c.a, c.energy);
  OK(cudaStreamEndCapture(c.stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  return exec;
}

int main() {
  Chain c;
  std::vector<float> host(kCells);
  float* dt;
  double *energy, check = 0;
  OK(cudaStreamCreate(&c.stream));
  OK(cudaMalloc(&c.a, kCells * sizeof(float)));
  OK(cudaMalloc(&c.b, kCells * sizeof(float)));
  OK(cudaMalloc(&c.dt, sizeof(float)));
  OK(cudaMalloc(&c.energy, sizeof(double)));
  OK(cudaMallocHost(&dt, sizeof(float)));
  OK(cudaMallocHost(&energy, sizeof(double)));
  for (int i = 0; i < kCells; ++i) host[i] = std::sin(0.02f * i) + 0.1f * std::sin(1.7f * i);
  OK(cudaMemcpy(c.a, host.data(), kCells * sizeof(float), cudaMemcpyHostToDevice));
  *dt = 0.05f;
  const int steps = 600;
  cudaGraphExec_t exec = record(c);
  auto step = [&](int) {
    OK(cudaMemcpyAsync(c.dt, dt, sizeof(float), cudaMemcpyHostToDevice, c.stream));
    OK(cudaGraphLaunch(exec, c.stream));
    OK(cudaMemcpyAsync(energy, c.energy, sizeof(double), cudaMemcpyDeviceToHost, c.stream));
    OK(cudaStreamSynchronize(c.stream));
    *dt = 0.05f + 1e-7f * (float)*energy;
    check += *energy;
  };

  for (int k = 0; k < 5; ++k) step(k);
  OK(cudaDeviceSynchronize());
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step(k);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;

  std::printf("check %.4f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
