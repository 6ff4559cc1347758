// out = 2 * in over a row-major matrix, with a mistake to find: uncoalesced accesses.
//
// threadIdx.x walks down a column, so the 32 lanes of a warp touch 32 rows, a whole row apart: 32 sectors
// of 32 bytes for 128 bytes of use. The cure is to swap x and y.
extern "C" __global__ void uncoalesced(const float *in, float *out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) {
        size_t i = (size_t)row * cols + col;
        out[i] = 2.0f * in[i];
    }
}
