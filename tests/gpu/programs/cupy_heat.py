"""Heat flow on a grid with CuPy: element-wise kernels, a raw kernel and a reduction a step."""

import cupy as cp

decay = cp.ElementwiseKernel("float32 x, float32 k", "float32 y", "y = x * (1 - k)", "decay")
grid = cp.random.default_rng(0).random((4096, 4096), dtype=cp.float32)
for _ in range(20):
    around = cp.roll(grid, 1, 0) + cp.roll(grid, -1, 0) + cp.roll(grid, 1, 1) + cp.roll(grid, -1, 1)
    grid = decay(0.5 * grid + 0.125 * around, cp.float32(0.001))
    total = float(grid.sum())
print("total", total)
