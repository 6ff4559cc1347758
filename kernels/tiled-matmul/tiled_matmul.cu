// c = a * b, row-major, through 32 x 32 tiles in shared memory.
//
// Each element of a tile is read from device memory once and used 32 times. That makes the kernel bound
// by shared memory and by the barriers around each tile, not by device memory: about a tenth of the FP32
// peak. The next steps (more outputs per thread, then tensor cores) start here.
#define TILE 32

extern "C" __global__ void tiled_matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];

    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;

    for (int start = 0; start < k; start += TILE) {
        // Zeros past the edges, so that the inner loop needs no test.
        int a_col = start + threadIdx.x;
        int b_row = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[(size_t)row * k + a_col] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = b_row < k && col < n ? b[(size_t)b_row * n + col] : 0.0f;
        __syncthreads();

        for (int i = 0; i < TILE; i++) {
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        }
        __syncthreads();
    }

    if (row < m && col < n) {
        c[(size_t)row * n + col] = sum;
    }
}
