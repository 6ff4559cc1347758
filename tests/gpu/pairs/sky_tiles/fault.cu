// Integrates light over sky tiles; each tile wants its own number of samples.
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

constexpr int kThreads = 1024, kPlain = 3168, kDense = 8;

struct Tile {
  int id, samples;
};

__global__ void __launch_bounds__(kThreads, 2) shade(const Tile* tiles, float* out) {
  Tile t = tiles[blockIdx.x];
  float x = 0.1f + 1e-4f * threadIdx.x, y = 0.2f + 1e-5f * (t.id % 97);
  for (int k = 0; k < t.samples; ++k) {
    float nx = fmaf(x, 0.99f, 0.01f * y);
    y = fmaf(y, 0.98f, 0.02f * nx * nx);
    x = nx;
  }
  out[(size_t)t.id * kThreads + threadIdx.x] = x + y;
}

__global__ void total(const float* v, size_t n, double* out) {
  double s = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += v[i];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

int main() {
  std::vector<Tile> tiles;
  for (int i = 0; i < kPlain + kDense; ++i) {
    bool dense = i % 397 == 200 && i / 397 < kDense;
    tiles.push_back({i, dense ? 28000 : 2000});
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.samples < b.samples; });
  const int count = (int)tiles.size(), steps = 800;
  Tile* list;
  float* out;
  double *sum, check;
  OK(cudaMalloc(&list, count * sizeof(Tile)));
  OK(cudaMalloc(&out, (size_t)count * kThreads * sizeof(float)));
  OK(cudaMalloc(&sum, sizeof(double)));
  OK(cudaMemset(sum, 0, sizeof(double)));
  OK(cudaMemcpy(list, tiles.data(), count * sizeof(Tile), cudaMemcpyHostToDevice));
  auto step = [&](int) { shade<<<count, kThreads>>>(list, out); };

  for (int k = 0; k < 5; ++k) step(k);
  OK(cudaDeviceSynchronize());
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step(k);
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;

  total<<<264, 256>>>(out, (size_t)count * kThreads, sum);
  OK(cudaMemcpy(&check, sum, sizeof(double), cudaMemcpyDeviceToHost));
  std::printf("check %.5f\n", check);
  std::printf("step_ms %.4f\n", ms);
}
