// Shared by the drivers: checked CUDA calls and seeded buffers.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

inline void check(cudaError_t status, const char *what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
}

inline float *uniform(size_t count) {
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> draw(-1.0f, 1.0f);
    std::vector<float> host(count);
    for (float &value : host) {
        value = draw(engine);
    }
    float *device = nullptr;
    check(cudaMalloc(&device, count * sizeof(float)), "cudaMalloc");
    check(cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
    return device;
}

inline int *integers(size_t count, int low, int high) {
    std::mt19937 engine(1);
    std::uniform_int_distribution<int> draw(low, high);
    std::vector<int> host(count);
    for (int &value : host) {
        value = draw(engine);
    }
    int *device = nullptr;
    check(cudaMalloc(&device, count * sizeof(int)), "cudaMalloc");
    check(cudaMemcpy(device, host.data(), count * sizeof(int), cudaMemcpyHostToDevice), "cudaMemcpy");
    return device;
}

inline int blocks(int count, int per_block) { return (count + per_block - 1) / per_block; }
