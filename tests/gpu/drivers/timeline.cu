// Runs phases for the timeline analysis, one after the other. Each phase is a push/pop range and has GPU idle
// time of one known cause:
//
//   synced    a wait for the stream after every kernel: synchronisation
//   busy_host the host computes between the launches: host late
//   copied    a blocking copy to the host between the kernels: copy
//   tiny      many kernels, each shorter than its launch: launch latency
//   overlap   a copy at the same time as a kernel, then two small kernels at the same time
//   graph     five kernels in a CUDA graph, launched three times
//   no_work   nothing on the GPU
//   async     closes long before its kernels end
//
// Then faults for the NVTX lint: one kernel outside any range, one range without a name, two start/end ranges
// of one name that cross, and `never_closed`.
#include <nvtx3/nvToolsExt.h>

#include <chrono>

#include "buffers.h"

extern "C" {
__global__ void vecadd(const float *, const float *, float *, int);
__global__ void tiled_matmul(const float *, const float *, float *, int, int, int);
}

static void compute_on_host(int microseconds) {
    auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    while (std::chrono::steady_clock::now() < end) {
    }
}

int main() {
    const int n = 4194304;
    const int k = 512;
    const size_t size = n * sizeof(float);
    float *a = uniform(n);
    float *b = uniform(n);
    float *c = uniform(n);
    float *d = uniform(n);
    float *host = nullptr;
    check(cudaMallocHost(&host, size), "cudaMallocHost");
    cudaStream_t one, two;
    check(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking), "cudaStreamCreate");
    auto add = [&](cudaStream_t stream, int count) {
        vecadd<<<blocks(count, 256), 256, 0, stream>>>(a, b, c, count);
    };
    auto multiply = [&](cudaStream_t stream) {
        tiled_matmul<<<dim3(k / 32, k / 32), dim3(32, 32), 0, stream>>>(a, b, d, k, k, k);
    };
    add(one, n);  // outside any range; also loads the module
    multiply(one);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

    nvtxRangePushA("synced");
    for (int i = 0; i < 8; i++) {
        add(one, n);
        check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
    }
    nvtxRangePop();

    nvtxRangePushA("busy_host");
    for (int i = 0; i < 5; i++) {
        add(one, n);
        compute_on_host(300);
    }
    nvtxRangePop();
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");

    nvtxRangePushA("copied");
    for (int i = 0; i < 4; i++) {
        add(one, n);
        check(cudaMemcpyAsync(host, c, size, cudaMemcpyDeviceToHost, one), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
    }
    nvtxRangePop();

    nvtxRangePushA("tiny");
    for (int i = 0; i < 50; i++) {
        add(one, 1024);
    }
    nvtxRangePop();
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");

    nvtxRangePushA("overlap");
    multiply(one);
    multiply(one);
    multiply(one);
    check(cudaMemcpyAsync(b, host, size / 16, cudaMemcpyHostToDevice, two), "cudaMemcpyAsync");
    check(cudaMemsetAsync(a, 0, size / 16, two), "cudaMemsetAsync");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (int i = 0; i < 4; i++) {
        tiled_matmul<<<dim3(4, 4), dim3(32, 32), 0, one>>>(a, b, d, 128, 128, 128);
        tiled_matmul<<<dim3(4, 4), dim3(32, 32), 0, two>>>(a, b, c, 128, 128, 128);
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    nvtxRangePop();

    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    for (int i = 0; i < 5; i++) {
        add(one, n);
    }
    check(cudaStreamEndCapture(one, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
    nvtxRangePushA("graph");
    for (int i = 0; i < 3; i++) {
        check(cudaGraphLaunch(ready, one), "cudaGraphLaunch");
    }
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
    nvtxRangePop();

    nvtxRangePushA("no_work");
    compute_on_host(50);
    nvtxRangePop();

    nvtxRangePushA("async");
    for (int i = 0; i < 10; i++) {
        multiply(one);
    }
    nvtxRangePop();
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");

    add(one, n);  // outside any range
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
    nvtxRangePushA("");
    add(one, n);
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
    nvtxRangePop();
    nvtxRangeId_t first = nvtxRangeStartA("crossing");
    add(one, n);
    nvtxRangeId_t second = nvtxRangeStartA("crossing");
    check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
    nvtxRangeEnd(first);
    add(two, n);
    check(cudaStreamSynchronize(two), "cudaStreamSynchronize");
    nvtxRangeEnd(second);
    nvtxRangePushA("never_closed");
    add(one, n);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::puts("eight phases");
    return 0;
}
