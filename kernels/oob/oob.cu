// Faulty on purpose: c = a + b with a bound that lets one thread too many through. Its accesses lie just
// past the three arrays; the result is right all the same, so only memcheck tells.
extern "C" __global__ void oob(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) { // must be i < n
        c[i] = a[i] + b[i];
    }
}
