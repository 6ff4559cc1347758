// Prices a basket by random paths drawn with the minimal standard generator.
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

constexpr int kPaths = 1 << 21, kDraws = 128;

struct Generator {
  unsigned long long mul;
  static constexpr unsigned long long mod = 2147483647ull;
};

__device__ unsigned next(unsigned s, const Generator& g) {
  return (unsigned)((s * g.mul) % g.mod);
}

__global__ void seed(unsigned* state) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = (i + 1) * 2654435761u;
  h ^= h >> 15;
  state[i] = h % 2147483646u + 1u;
}

__global__ void paths(unsigned* state, float* price, Generator g, float drift, float vol) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned s = state[i];
  float p = 1.f, best = 0.f;
  for (int k = 0; k < kDraws; ++k) {
    s = next(s, g);
    float z = (s * 4.656612875e-10f - 0.5f) * 3.4641016f;
    p *= __expf(drift + vol * z);
    best = fmaxf(best, p);
  }
  state[i] = s;
  price[i] = best;
}

__global__ void total(const float* v, int n, double* out) {
  double s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

int main() {
  unsigned* state;
  float* price;
  double *sum, check;
  OK(cudaMalloc(&state, kPaths * sizeof(unsigned)));
  OK(cudaMalloc(&price, kPaths * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMemset(sum, 0, sizeof(double)));
  seed<<<kPaths / 256, 256>>>(state);
  const Generator minstd{48271ull};
  auto step = [&]() {
    paths<<<kPaths / 256, 256>>>(state, price, minstd, -2e-5f, 0.006f);
    total<<<264, 256>>>(price, kPaths, sum);
  };
  for (int k = 0; k < 5; ++k) step();
  OK(cudaDeviceSynchronize());
  const int steps = 400;
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step();
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;
  OK(cudaMemcpy(&check, sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("check %.6f\n", check / kPaths / (steps + 5));
  std::printf("step_ms %.4f\n", ms);
}
