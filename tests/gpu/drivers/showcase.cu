// showcase NAME: launches one of the worked kernels once, at the default size of its kernel.toml.
// showcase fail: launches vecadd and exits with status 3, to record what tools print then.
#include <cstring>

#include "buffers.h"

extern "C" {
__global__ void vecadd(const float *, const float *, float *, int);
__global__ void tiled_matmul(const float *, const float *, float *, int, int, int);
__global__ void softmax(const float *, float *, int);
__global__ void reduce(const float *, float *, int);
__global__ void transpose_conflicts(const float *, float *, int, int);
__global__ void transpose_padded(const float *, float *, int, int);
__global__ void uncoalesced(const float *, float *, int, int);
__global__ void spill(const float *, float *, int);
__global__ void divergent(const int *, int *, int);
}

static void launch(const char *name) {
    const int side = 4096;
    const int n = side * side;
    const dim3 tile(32, 8);
    if (!std::strcmp(name, "vecadd")) {
        vecadd<<<blocks(n, 256), 256>>>(uniform(n), uniform(n), uniform(n), n);
    } else if (!std::strcmp(name, "tiled-matmul")) {
        const int k = 1024;
        tiled_matmul<<<dim3(k / 32, k / 32), dim3(32, 32)>>>(uniform(k * k), uniform(k * k), uniform(k * k), k, k, k);
    } else if (!std::strcmp(name, "softmax")) {
        softmax<<<side, 256>>>(uniform(n), uniform(n), side);
    } else if (!std::strcmp(name, "reduce")) {
        reduce<<<1024, 256>>>(uniform(n), uniform(1), n);
    } else if (!std::strcmp(name, "transpose-conflicts")) {
        transpose_conflicts<<<dim3(side / 32, side / 32), tile>>>(uniform(n), uniform(n), side, side);
    } else if (!std::strcmp(name, "transpose-padded")) {
        transpose_padded<<<dim3(side / 32, side / 32), tile>>>(uniform(n), uniform(n), side, side);
    } else if (!std::strcmp(name, "uncoalesced")) {
        uncoalesced<<<dim3(side / 32, side / 8), tile>>>(uniform(n), uniform(n), side, side);
    } else if (!std::strcmp(name, "spill")) {
        const int columns = 262144;
        spill<<<blocks(columns, 128), 128>>>(uniform(64 * columns), uniform(64 * columns), columns);
    } else if (!std::strcmp(name, "divergent")) {
        const int count = 4194304;
        divergent<<<blocks(count, 256), 256>>>(integers(count, 1, 1000000), integers(count, 0, 0), count);
    } else {
        std::fprintf(stderr, "unknown kernel `%s`\n", name);
        std::exit(2);
    }
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "vecadd";
    const bool fail = !std::strcmp(name, "fail");
    launch(fail ? "vecadd" : name);
    std::printf("launched %s\n", fail ? "vecadd" : name);
    return fail ? 3 : 0;
}
