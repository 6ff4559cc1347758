// Star cluster: direct summation of gravity with softening, leapfrog steps.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                            \
    do {                                                                       \
        cudaError_t err_ = (call);                                             \
        if (err_ != cudaSuccess) {                                             \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,             \
                         cudaGetErrorString(err_));                            \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

struct Config {
    int stars = 32768;
    float dt = 0.002f;
    float softening = 0.02f;
    int warmup = 3;
    int steps = 40;
};

constexpr int BLOCK = 256;

__global__ void accelerate(const float4* __restrict__ body, float3* __restrict__ acc,
                           int n, float soft) {
    __shared__ float4 tile[BLOCK];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = body[i];
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int start = 0; start < n; start += BLOCK) {
        tile[threadIdx.x] = body[start + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < BLOCK; ++j) {
            float4 other = tile[j];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float r2 = dx * dx + dy * dy + dz * dz + soft * soft;
            float inv = 1.0f / sqrtf(r2 + 1e-9f);
            float pull = other.w * inv * inv * inv;
            ax += pull * dx;
            ay += pull * dy;
            az += pull * dz;
        }
        __syncthreads();
    }
    acc[i] = make_float3(ax, ay, az);
}

__global__ void kick_drift(float4* body, float3* vel, const float3* acc, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float3 v = vel[i];
    v.x += dt * acc[i].x;
    v.y += dt * acc[i].y;
    v.z += dt * acc[i].z;
    vel[i] = v;
    float4 b = body[i];
    b.x += dt * v.x;
    b.y += dt * v.y;
    b.z += dt * v.z;
    body[i] = b;
}

__global__ void kinetic(const float4* body, const float3* vel, int n, float* out) {
    __shared__ float part[BLOCK];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float3 v = vel[i];
        sum += 0.5f * body[i].w * (v.x * v.x + v.y * v.y + v.z * v.z);
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

static float uniform() { return std::rand() / (RAND_MAX + 1.0f); }

int main() {
    Config cfg;
    int n = cfg.stars;
    std::srand(7);
    std::vector<float4> body(n);
    std::vector<float3> vel(n);
    for (int i = 0; i < n; ++i) {
        float r = std::pow(uniform() + 1e-3f, 0.5f), z = 2.0f * uniform() - 1.0f;
        float phi = 6.2831853f * uniform(), s = std::sqrt(std::fmax(0.0f, 1.0f - z * z));
        body[i] = make_float4(r * s * std::cos(phi), r * s * std::sin(phi), r * z, 1.0f / n);
        vel[i] = make_float3(-0.5f * body[i].y, 0.5f * body[i].x, 0.0f);
    }
    float4* d_body;
    float3 *d_vel, *d_acc;
    float* d_energy;
    int total = cfg.warmup + cfg.steps;
    CHECK(cudaMalloc(&d_body, n * sizeof(float4)));
    CHECK(cudaMalloc(&d_vel, n * sizeof(float3)));
    CHECK(cudaMalloc(&d_acc, n * sizeof(float3)));
    CHECK(cudaMalloc(&d_energy, total * sizeof(float)));
    CHECK(cudaMemset(d_energy, 0, total * sizeof(float)));
    CHECK(cudaMemcpy(d_body, body.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_vel, vel.data(), n * sizeof(float3), cudaMemcpyHostToDevice));

    int grid = n / BLOCK;
    auto step = [&](int s) {
        accelerate<<<grid, BLOCK>>>(d_body, d_acc, n, cfg.softening);
        kick_drift<<<grid, BLOCK>>>(d_body, d_vel, d_acc, n, cfg.dt);
        kinetic<<<64, BLOCK>>>(d_body, d_vel, n, d_energy + s);
    };
    for (int s = 0; s < cfg.warmup; ++s) step(s);
    CHECK(cudaDeviceSynchronize());
    auto begin = std::chrono::steady_clock::now();
    for (int s = cfg.warmup; s < total; ++s) step(s);
    CHECK(cudaDeviceSynchronize());
    auto end = std::chrono::steady_clock::now();
    CHECK(cudaGetLastError());
    std::vector<float> energy(total);
    CHECK(cudaMemcpy(energy.data(), d_energy, total * sizeof(float), cudaMemcpyDeviceToHost));
    std::printf("kinetic energy %.6f -> %.6f\n", energy.front(), energy.back());
    double ms = std::chrono::duration<double, std::milli>(end - begin).count() / cfg.steps;
    std::printf("step_ms=%.4f\n", ms);
    return 0;
}
