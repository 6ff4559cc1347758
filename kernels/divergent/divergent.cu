// How many steps each number takes to reach one (halve when even, else triple and add one), with a trait to
// find: divergence. A warp runs until its slowest lane is done, so on average half of its lanes are idle.
extern "C" __global__ void divergent(const int *start, int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    unsigned long long value = start[i]; // 32 bits are too few on the way: 113383 climbs to 2482111348
    int count = 0;
    while (value > 1) {
        if (value % 2 == 0) {
            value /= 2;
        } else {
            value = 3 * value + 1;
        }
        count++;
    }
    steps[i] = count;
}
