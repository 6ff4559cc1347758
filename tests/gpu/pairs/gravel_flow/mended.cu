// Transport of gravel in a channel: upwind advection with diffusion and an inlet that varies.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
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
    int width = 4096;
    int height = 4096;
    float speed = 0.35f;
    float spread = 0.08f;
    int warmup = 5;
    int steps = 200;
};

__host__ __device__ inline float inlet_value(int x, int width, int step) {
    float place = float(x) / width - 0.5f;
    float pulse = 1.0f + 0.5f * sinf(0.05f * step);
    return pulse * expf(-20.0f * place * place);
}

__global__ void fill_inlet(float* field, int width, int step) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x < width) field[x] = inlet_value(x, width, step);
}

__global__ void advance(const float* __restrict__ in, float* __restrict__ out,
                        const float* __restrict__ bed, int width, int height,
                        float speed, float spread) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    size_t i = size_t(y) * width + x;
    float here = in[i];
    if (y == 0) {
        out[i] = here;
        return;
    }
    float up = in[i - width];
    float down = y + 1 < height ? in[i + width] : here;
    float left = x > 0 ? in[i - 1] : here;
    float right = x + 1 < width ? in[i + 1] : here;
    float flow = speed * (1.0f - 0.5f * bed[i]);
    float moved = here + flow * (up - here);
    out[i] = moved + spread * (up + down + left + right - 4.0f * here);
}

__global__ void outflow(const float* field, int width, int height, float* total) {
    __shared__ float part[256];
    float sum = 0.0f;
    for (int x = threadIdx.x; x < width; x += blockDim.x)
        sum += field[size_t(height / 64) * width + x];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) *total += part[0];
}

class Channel {
public:
    explicit Channel(const Config& cfg) : cfg_(cfg) {
        size_t cells = size_t(cfg.width) * cfg.height;
        CHECK(cudaMallocManaged(&field_, cells * sizeof(float)));
        CHECK(cudaMallocManaged(&next_, cells * sizeof(float)));
        CHECK(cudaMalloc(&bed_, cells * sizeof(float)));
        CHECK(cudaMalloc(&total_, sizeof(float)));
        std::vector<float> bed(cells);
        for (size_t i = 0; i < cells; ++i) bed[i] = float((i * 2654435761u) >> 8 & 255) / 255.0f;
        CHECK(cudaMemcpy(bed_, bed.data(), cells * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemset(field_, 0, cells * sizeof(float)));
        CHECK(cudaMemset(next_, 0, cells * sizeof(float)));
        CHECK(cudaMemset(total_, 0, sizeof(float)));
        CHECK(cudaDeviceSynchronize());
    }

    void set_inlet(int step) {
        fill_inlet<<<(cfg_.width + 255) / 256, 256>>>(field_, cfg_.width, step);
    }

    void step(int s) {
        dim3 block(64, 4), grid((cfg_.width + 63) / 64, (cfg_.height + 3) / 4);
        set_inlet(s);
        advance<<<grid, block>>>(field_, next_, bed_, cfg_.width, cfg_.height, cfg_.speed, cfg_.spread);
        outflow<<<1, 256>>>(next_, cfg_.width, cfg_.height, total_);
        std::swap(field_, next_);
    }

    float total() const {
        float value = 0.0f;
        CHECK(cudaMemcpy(&value, total_, sizeof(float), cudaMemcpyDeviceToHost));
        return value;
    }

private:
    Config cfg_;
    float *field_, *next_, *bed_, *total_;
};

int main() {
    Config cfg;
    Channel channel(cfg);
    for (int s = 0; s < cfg.warmup; ++s) channel.step(s);
    CHECK(cudaDeviceSynchronize());
    auto begin = std::chrono::steady_clock::now();
    for (int s = 0; s < cfg.steps; ++s) channel.step(cfg.warmup + s);
    CHECK(cudaDeviceSynchronize());
    auto end = std::chrono::steady_clock::now();
    CHECK(cudaGetLastError());
    std::printf("outflow %.6f\n", channel.total());
    double ms = std::chrono::duration<double, std::milli>(end - begin).count() / cfg.steps;
    std::printf("step_ms=%.4f\n", ms);
    return 0;
}
