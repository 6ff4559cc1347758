// out = the transpose of in, through a tile in shared memory whose rows are one word longer than they need be.
//
// That word puts neighbouring elements of a column into neighbouring banks, so a warp reads a column at once.
// Compare with `transpose-conflicts`, which is the same but for the padding.
#define TILE 32
#define ROWS_PER_PASS 8 // the block is 32 x 8 threads; each moves four elements

extern "C" __global__ void transpose_padded(const float *in, float *out, int rows, int cols) {
    __shared__ float tile[TILE][TILE + 1];

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
