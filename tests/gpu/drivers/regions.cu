// Seven launches under NVTX ranges: A { vecadd, A1 { tiled_matmul } }, B { 5 x vecadd }, all inside a
// start/end range `whole` of the domain `rgpu`. A mark, a registered name (`ready`) and a payload test the
// readers of the reports.
//
// regions CALL makes one more call inside A, to record range replay's message: managed, register or ipc.
#include <nvtx3/nvToolsExt.h>

#include <cstring>

#include "buffers.h"

extern "C" {
__global__ void vecadd(const float *, const float *, float *, int);
__global__ void tiled_matmul(const float *, const float *, float *, int, int, int);
}

static void more(const char *call, float *device) {
    static float page[1024];
    if (!std::strcmp(call, "managed")) {
        float *managed = nullptr;
        check(cudaMallocManaged(&managed, 4096), "cudaMallocManaged");
    } else if (!std::strcmp(call, "register")) {
        check(cudaHostRegister(page, sizeof page, cudaHostRegisterDefault), "cudaHostRegister");
    } else if (!std::strcmp(call, "ipc")) {
        cudaIpcMemHandle_t handle;
        check(cudaIpcGetMemHandle(&handle, device), "cudaIpcGetMemHandle");
    }
}

int main(int argc, char **argv) {
    const int n = 4194304;
    const int k = 512;
    float *a = uniform(n);
    float *b = uniform(n);
    float *c = uniform(n);
    cudaStream_t stream;
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

    nvtxDomainHandle_t domain = nvtxDomainCreateA("rgpu");
    nvtxEventAttributes_t named = {};
    named.version = NVTX_VERSION;
    named.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    named.messageType = NVTX_MESSAGE_TYPE_ASCII;
    named.message.ascii = "whole";
    named.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    named.payload.ullValue = 7;
    nvtxRangeId_t whole = nvtxDomainRangeStartEx(domain, &named);
    named.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    named.message.registered = nvtxDomainRegisterStringA(domain, "ready");
    named.payloadType = NVTX_PAYLOAD_UNKNOWN;
    nvtxDomainMarkEx(domain, &named);

    nvtxRangePushA("A");
    vecadd<<<blocks(n, 256), 256, 0, stream>>>(a, b, c, n);
    more(argc > 1 ? argv[1] : "", c);
    nvtxRangePushA("A1");
    tiled_matmul<<<dim3(k / 32, k / 32), dim3(32, 32), 0, stream>>>(a, b, c, k, k, k);
    nvtxRangePop();
    nvtxRangePop();
    nvtxRangePushA("B");
    for (int i = 0; i < 5; i++) {
        vecadd<<<blocks(n, 256), 256, 0, stream>>>(a, b, c, n);
    }
    nvtxRangePop();

    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    nvtxDomainRangeEnd(domain, whole);
    std::puts("seven launches");
    return 0;
}
