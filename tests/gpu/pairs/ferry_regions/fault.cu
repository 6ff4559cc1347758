// Traffic of ferries in separate regions: each region relaxes its own flow field on a stream.
#include <chrono>
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
    int regions = 8;
    int side = 128;
    int inner = 150;
    int rounds = 3;
    int warmup = 3;
    int steps = 60;
};

struct Region {
    cudaStream_t stream;
    float* field;
    float* next;
    float* source;
    float* tally;
};

// Several relaxations of one strip of rows, kept in the block's own rows.
__global__ void relax(const float* __restrict__ in, float* __restrict__ out,
                      const float* __restrict__ source, int side, int inner) {
    int rows = side / gridDim.x;
    int first = blockIdx.x * rows;
    for (int k = threadIdx.x; k < rows * side; k += blockDim.x) {
        int y = first + k / side, x = k % side;
        int up = max(y - 1, 0), down = min(y + 1, side - 1);
        int left = max(x - 1, 0), right = min(x + 1, side - 1);
        float mean = 0.25f * (in[up * side + x] + in[down * side + x] +
                              in[y * side + left] + in[y * side + right]);
        float value = in[y * side + x], s = source[y * side + x];
        for (int i = 0; i < inner; ++i) {
            float flux = mean - value + s;
            value += 0.05f * flux / (1.0f + value * value);
        }
        out[y * side + x] = value;
    }
}

// Traffic of the sources: counts how much each row was asked for.
__global__ void count_demand(const float* source, float* tally, int side) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= side) return;
    float sum = 0.0f;
    for (int x = 0; x < side; x += 8) sum += source[row * side + x];
    tally[row] += sum;
}

class Simulation {
public:
    explicit Simulation(const Config& cfg) : cfg_(cfg), regions_(cfg.regions) {
        size_t cells = size_t(cfg.side) * cfg.side;
        std::vector<float> host(cells);
        for (size_t r = 0; r < regions_.size(); ++r) {
            Region& g = regions_[r];
            CHECK(cudaStreamCreate(&g.stream));
            CHECK(cudaMalloc(&g.field, cells * sizeof(float)));
            CHECK(cudaMalloc(&g.next, cells * sizeof(float)));
            CHECK(cudaMalloc(&g.source, cells * sizeof(float)));
            CHECK(cudaMalloc(&g.tally, cfg.side * sizeof(float)));
            for (size_t i = 0; i < cells; ++i) host[i] = float((i * 37 + r * 11) % 101) / 101.0f;
            CHECK(cudaMemcpy(g.source, host.data(), cells * sizeof(float), cudaMemcpyHostToDevice));
            CHECK(cudaMemset(g.field, 0, cells * sizeof(float)));
            CHECK(cudaMemset(g.tally, 0, cfg.side * sizeof(float)));
        }
    }

    void step() {
        int lines = (cfg_.side + 127) / 128;
        for (int round = 0; round < cfg_.rounds; ++round) {
            for (Region& g : regions_) {
                relax<<<8, 256, 0, g.stream>>>(g.field, g.next, g.source, cfg_.side, cfg_.inner);
                count_demand<<<lines, 128>>>(g.source, g.tally, cfg_.side);
                float* t = g.field;
                g.field = g.next;
                g.next = t;
            }
        }
    }

    double checksum() const {
        size_t cells = size_t(cfg_.side) * cfg_.side;
        std::vector<float> host(cells), rows(cfg_.side);
        double sum = 0.0;
        for (const Region& g : regions_) {
            CHECK(cudaMemcpy(host.data(), g.field, cells * sizeof(float), cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(rows.data(), g.tally, rows.size() * sizeof(float), cudaMemcpyDeviceToHost));
            for (float v : host) sum += v;
            sum += rows[0] / 1000.0;
        }
        return sum / cells;
    }

private:
    Config cfg_;
    std::vector<Region> regions_;
};

int main() {
    Config cfg;
    Simulation sim(cfg);
    CHECK(cudaDeviceSynchronize());
    for (int s = 0; s < cfg.warmup; ++s) sim.step();
    CHECK(cudaDeviceSynchronize());
    auto begin = std::chrono::steady_clock::now();
    for (int s = 0; s < cfg.steps; ++s) sim.step();
    CHECK(cudaDeviceSynchronize());
    auto end = std::chrono::steady_clock::now();
    CHECK(cudaGetLastError());
    std::printf("checksum %.6f\n", sim.checksum());
    double ms = std::chrono::duration<double, std::milli>(end - begin).count() / cfg.steps;
    std::printf("step_ms=%.4f\n", ms);
    return 0;
}
