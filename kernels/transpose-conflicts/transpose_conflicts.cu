// out = the transpose of in, through a tile in shared memory, with a mistake to find: bank conflicts.
//
// Both accesses to device memory are coalesced; that is what the tile is for. But a row of the tile is 32
// words, so a column lies in one of the 32 banks of shared memory, and the reads below, a column per warp,
// are served one lane after the other: 32 times the time. `transpose-padded` is the cure.
#define TILE 32
#define ROWS_PER_PASS 8 // the block is 32 x 8 threads; each moves four elements

extern "C" __global__ void transpose_conflicts(const float *in, float *out, int rows, int cols) {
    __shared__ float tile[TILE][TILE];

    int col = blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += ROWS_PER_PASS) {
        int row = blockIdx.y * TILE + i;
        if (row < rows && col < cols) {
            tile[i][threadIdx.x] = in[(size_t)row * cols + col];
        }
    }
    __syncthreads();

    int out_col = blockIdx.y * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += ROWS_PER_PASS) {
        int out_row = blockIdx.x * TILE + i;
        if (out_row < cols && out_col < rows) {
            out[(size_t)out_row * rows + out_col] = tile[threadIdx.x][i];
        }
    }
}
