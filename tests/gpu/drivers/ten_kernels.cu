// Ten kernels that each spin for a known time, so that the share of each in the GPU time is known. Their names
// test filters: templates, overloads, lambdas, an anonymous namespace, very long names.
//
//     kernel                                   launches x time     range
//     heavy(float *, long long)                3 x 4 ms            work::solve       60 % of all
//     tile<float, 4>                           8 x 500 us          work::decode_0
//     tile<double, 2>                          2 x 1 ms            work::decode_1
//     add(float *, ...), add(double *, ...)    4 x 150, 4 x 50 us  work::decode_0
//     apply<lambda>                            4 x 50 us           work
//     quiet (anonymous namespace)              4 x 25 us           work
//     a::very::long::…::step<…>                4 x 20 us           work
//     cost$each                                20 x 4 us           outside any range
//     varies                                   10 x 5..50 us       outside any range
//
// Times come from the GPU's own nanosecond timer, so they do not depend on its clocks. Each kernel has one block, so
// nothing else changes its time.
#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "buffers.h"

__device__ void spin(long long ns, float *out) {
    long long begun, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begun < ns);
    if (threadIdx.x == 0) {
        *out += 1.0f;
    }
}

__global__ void heavy(float *out, long long ns) { spin(ns, out); }

template <typename T, int N>
__global__ void tile(T *out, long long ns) {
    spin(ns, reinterpret_cast<float *>(out) + N);
}

__global__ void add(float *out, long long ns) { spin(ns, out); }
__global__ void add(double *out, long long ns) { spin(ns, reinterpret_cast<float *>(out)); }

template <typename F>
__global__ void apply(F function, float *out) {
    spin(function(50), out);
}

namespace {
__global__ void quiet(float *out, long long ns) { spin(ns, out); }
}  // namespace

namespace a::very::long_::path::of::namespaces::as::libraries::have::them {
template <typename A, typename B>
struct pair_of_policies {};
template <typename Policy, typename Left, typename Right, bool Flag>
__global__ void step(float *out, long long ns) {
    spin(ns, out);
}
}  // namespace a::very::long_::path::of::namespaces::as::libraries::have::them

extern "C" __global__ void cost$each(float *out, long long ns) { spin(ns, out); }
extern "C" __global__ void varies(float *out, long long ns) { spin(ns, out); }

int main() {
    namespace deep = a::very::long_::path::of::namespaces::as::libraries::have::them;
    using policies = deep::pair_of_policies<std::pair<int, float>, deep::pair_of_policies<char, unsigned long>>;
    const long long us = 1000;
    float *out = uniform(4096);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

    nvtxRangePushA("work");
    nvtxRangePushA("solve");
    for (int i = 0; i < 3; i++) heavy<<<1, 32>>>(out, 4000 * us);
    nvtxRangePop();
    nvtxRangePushA("decode_0");
    for (int i = 0; i < 8; i++) tile<float, 4><<<1, 32>>>(out, 500 * us);
    for (int i = 0; i < 4; i++) add<<<1, 32>>>(out, 150 * us);
    for (int i = 0; i < 4; i++) add<<<1, 32>>>(reinterpret_cast<double *>(out), 50 * us);
    nvtxRangePop();
    nvtxRangePushA("decode_1");
    for (int i = 0; i < 2; i++) tile<double, 2><<<1, 32>>>(reinterpret_cast<double *>(out), 1000 * us);
    nvtxRangePop();
    for (int i = 0; i < 4; i++) apply<<<1, 32>>>([] __device__(int n) { return n * 1000LL; }, out);
    for (int i = 0; i < 4; i++) quiet<<<1, 32>>>(out, 25 * us);
    for (int i = 0; i < 4; i++) deep::step<policies, const volatile char *, void (*)(int, ...), true><<<1, 32>>>(out, 20 * us);
    nvtxRangePop();
    for (int i = 0; i < 20; i++) cost$each<<<1, 32>>>(out, 4 * us);
    for (int i = 0; i < 10; i++) varies<<<1, 32>>>(out, (i + 1) * 5 * us);

    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::puts("ten kernels");
    return 0;
}
