// Ages a stock of goods of four kinds, each kind by its own law.
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

constexpr int kItems = 1 << 22, kKinds = 4, kHours = 48;

struct Item {
  float value;
  int kind;
};

__global__ void age(Item* items, int n, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Item it = items[i];
  float v = it.value;
  switch (it.kind) {
    case 0:
      for (int h = 0; h < kHours; ++h) v += dt * __sinf(v + 0.3f) * __expf(-v);
      break;
    case 1:
      for (int h = 0; h < kHours; ++h) v -= dt * sqrtf(v * v + 0.1f) / (1.f + v * v);
      break;
    case 2:
      for (int h = 0; h < kHours; ++h) v += dt * (__logf(2.f + v * v) - 0.8f * v);
      break;
    default:
      for (int h = 0; h < kHours; ++h) v = v * (1.f - dt) + dt * __cosf(3.f * v) * rsqrtf(1.f + v * v);
  }
  items[i].value = v;
}

int slot_of(int id) {
  return (id % kKinds) * (kItems / kKinds) + id / kKinds;
}

int main() {
  std::vector<Item> host(kItems);
  unsigned state = 11;
  for (int id = 0; id < kItems; ++id) {
    state = state * 1664525u + 1013904223u;
    host[slot_of(id)] = {(state >> 8) * (1.f / 16777216.f), id % kKinds};
  }
  Item* items;
  OK(cudaMalloc(&items, kItems * sizeof(Item)));
  OK(cudaMemcpy(items, host.data(), kItems * sizeof(Item), cudaMemcpyHostToDevice));
  auto step = [&]() { age<<<(kItems + 255) / 256, 256>>>(items, kItems, 0.001f); };
  for (int k = 0; k < 5; ++k) step();
  OK(cudaDeviceSynchronize());
  const int steps = 1000;
  auto t0 = Clock::now();
  for (int k = 0; k < steps; ++k) step();
  OK(cudaDeviceSynchronize());
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count() / steps;
  OK(cudaMemcpy(host.data(), items, kItems * sizeof(Item), cudaMemcpyDeviceToHost));
  double sum[kKinds] = {};
  for (const Item& it : host) sum[it.kind] += it.value;
  std::printf("check %.3f\n", sum[0] + 2 * sum[1] + 3 * sum[2] + 4 * sum[3]);
  std::printf("step_ms %.4f\n", ms);
}
