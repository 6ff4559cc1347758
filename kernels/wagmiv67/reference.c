/* C[m][n] = sum over k of A[m][k] B[n][k], each element a code times the scale of its block of 16. All sums here
 * are exact for the official values (multiples of 1/4 below 2^16), and far finer than f16 for any. */
#include "rgpu.h"

/* Where the scale of (row, k) lies: blocks of 128 rows x 64 elements take 512 bytes; in one, 32 groups of 16
 * bytes by row % 32, four rows 32 apart in each, four scales of a row. */
static uint64_t scale_index(int64_t row, int64_t k, int64_t k_total) {
    int64_t block = row / 128 * ((k_total + 63) / 64) + k / 64;
    return (uint64_t)(block * 512 + row % 32 * 16 + row % 128 / 32 * 4 + k % 64 / 16);
}

/* Rounds to nearest even as rgpu_set does, but overflows to infinity as the hardware's conversion. */
static void store_f16(const rgpu_tensor *t, uint64_t i, double value) {
    if (value >= 65520.0 || value <= -65520.0)
        ((uint16_t *)t->data)[i] = value > 0 ? 0x7c00 : 0xfc00;
    else
        rgpu_set(t, i, value);
}

int rgpu_reference(const rgpu_case *problem) {
    for (uint32_t g = 0; g < problem->groups; g++) {
        int64_t m = rgpu_size(problem, g, 0), n = rgpu_size(problem, g, 1), k = rgpu_size(problem, g, 2);
        int64_t l = rgpu_size(problem, g, 3);
        const rgpu_tensor *a = rgpu_arg(problem, g, 0), *b = rgpu_arg(problem, g, 1);
        const rgpu_tensor *sfa = rgpu_arg(problem, g, 2), *sfb = rgpu_arg(problem, g, 3);
        const rgpu_tensor *c = rgpu_arg(problem, g, 4);
        uint64_t sfa_step = rgpu_count(sfa) / (uint64_t)l, sfb_step = rgpu_count(sfb) / (uint64_t)l;
        for (int64_t i = 0; i < l; i++) {
            for (int64_t row = 0; row < m; row++) {
                for (int64_t column = 0; column < n; column++) {
                    double sum = 0.0;
                    for (int64_t block = 0; block < k; block += 16) {
                        double dot = 0.0;
                        for (int64_t e = block; e < block + 16; e++)
                            dot += rgpu_get(a, (uint64_t)((i * m + row) * k + e)) *
                                   rgpu_get(b, (uint64_t)((i * n + column) * k + e));
                        sum += dot * rgpu_get(sfa, (uint64_t)i * sfa_step + scale_index(row, block, k)) *
                               rgpu_get(sfb, (uint64_t)i * sfb_step + scale_index(column, block, k));
                    }
                    store_f16(c, (uint64_t)((i * m + row) * n + column), sum);
                }
            }
        }
    }
    return 0;
}
