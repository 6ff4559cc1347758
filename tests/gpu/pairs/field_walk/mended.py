"""Walkers that wander over a map of slopes."""
import math
import time

import numpy as np
from numba import cuda

SIDE, WALKERS, HOPS = 2048, 1 << 20, 400
STEPS = 100


@cuda.jit
def walk(slopes, xs, ys, hops):
    i = cuda.grid(1)
    if i >= xs.size:
        return
    x = xs[i]
    y = ys[i]
    side = slopes.shape[0]
    for _ in range(hops):
        s = slopes[y, x]
        x = (x + (1 if s > 0 else side - 1)) % side
        y = (y + (i & 7) + 1) % side
    xs[i] = x
    ys[i] = y


@cuda.jit
def spread(xs, ys, total):
    i = cuda.grid(1)
    if i < total.size:
        total[i] += math.sqrt(float(xs[i]) * xs[i] + float(ys[i]) * ys[i])


def main():
    rng = np.random.default_rng(0)
    slopes = cuda.to_device(rng.standard_normal((SIDE, SIDE)).astype(np.float32))
    xs = cuda.to_device(rng.integers(0, SIDE, WALKERS, dtype=np.int32))
    ys = cuda.to_device(rng.integers(0, SIDE, WALKERS, dtype=np.int32))
    total = cuda.to_device(np.zeros(WALKERS))
    grid = (WALKERS + 255) // 256

    def step():
        walk[grid, 256](slopes, xs, ys, HOPS)
        spread[grid, 256](xs, ys, total)

    for _ in range(4):
        step()
    cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        step()
    cuda.synchronize()
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {total.copy_to_host().mean():.4f}")
    print(f"step_ms {ms:.4f}")


main()
