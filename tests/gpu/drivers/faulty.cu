// faulty NAME: launches one faulty kernel as its kernel.toml says, at the size `small`. `clean` launches
// vecadd instead, `leak` does not free a buffer, `crash` writes to a wild pointer, `unused` never uses a buffer.
#include <cstring>

#include "buffers.h"
#include "rgpu.h"

extern "C" {
__global__ void vecadd(const float *, const float *, float *, int);
__global__ void oob(const float *, const float *, float *, int);
__global__ void race(const float *, float *);
__global__ void bad_barrier(const float *, float *, int);
}

__global__ void wild(float *target) { *target = 1.0f; }

// Only `uninit` has a host entry: rgpu_prepare and the others are defined in kernels/uninit.
static void uninit() {
    int64_t n = 1000;
    uint64_t byte_dims[] = {1000};
    uint64_t bin_dims[] = {256};
    rgpu_tensor args[2] = {};
    args[0].data = integers(250, 0, 1 << 30);
    args[0].bytes = 1000;
    args[0].dtype = RGPU_U8;
    args[0].rank = 1;
    args[0].dims = byte_dims;
    args[1].data = integers(256, 0, 0);
    args[1].bytes = 1024;
    args[1].dtype = RGPU_U32;
    args[1].rank = 1;
    args[1].dims = bin_dims;
    rgpu_case problem = {RGPU_ABI, 1, 1, 2, &n, args};
    void *state = nullptr;
    check((cudaError_t)rgpu_prepare(&problem, &state), "rgpu_prepare");
    check((cudaError_t)rgpu_launch(state, nullptr), "rgpu_launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    rgpu_finish(state);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "clean";
    const int n = 1000;
    if (!std::strcmp(name, "uninit")) {
        uninit();
        std::printf("launched %s\n", name);
        return 0;
    }
    float *a = uniform(n);
    float *b = uniform(n);
    float *c = uniform(1024);
    if (!std::strcmp(name, "clean") || !std::strcmp(name, "leak") || !std::strcmp(name, "unused")) {
        float *spare = nullptr;
        if (std::strcmp(name, "clean")) {
            check(cudaMalloc(&spare, 4096), "cudaMalloc");
        }
        vecadd<<<blocks(n, 256), 256>>>(a, b, c, n);
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        if (!std::strcmp(name, "unused")) {
            check(cudaFree(spare), "cudaFree");
        }
    } else if (!std::strcmp(name, "oob")) {
        oob<<<blocks(n, 256), 256>>>(a, b, c, n);
    } else if (!std::strcmp(name, "race")) {
        race<<<4, 256>>>(uniform(1024), c);
    } else if (!std::strcmp(name, "bad-barrier")) {
        bad_barrier<<<blocks(n, 256), 256>>>(a, c, n);
    } else if (!std::strcmp(name, "crash")) {
        wild<<<1, 1>>>((float *)0x10);
    } else {
        std::fprintf(stderr, "unknown kernel `%s`\n", name);
        return 2;
    }
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaFree(a), "cudaFree");
    check(cudaFree(b), "cudaFree");
    check(cudaFree(c), "cudaFree");
    std::printf("launched %s\n", name);
    return 0;
}
