"""Brightness of twelve bands of night-sky frames."""
import time

import cupy as cp
import numpy as np

SIDE, BANDS = 4096, 12
STEPS = 60


def settle(sky, noise, k):
    sky *= 0.98
    sky += 0.02 * cp.roll(noise, k * 64, axis=0)
    return cp.sqrt(sky * sky + 0.01)


def bands(light):
    edges = np.linspace(0.1, 1.0, BANDS + 1).tolist()
    found = []
    for lo, hi in zip(edges, edges[1:]):
        inside = (light >= cp.float32(lo)) & (light < cp.float32(hi))
        found.append(cp.where(inside, light, cp.float32(0)).sum())
    return cp.stack(found)


def main():
    rng = cp.random.default_rng(1)
    sky = rng.random((SIDE, SIDE), dtype=cp.float32)
    noise = rng.random((SIDE, SIDE), dtype=cp.float32)
    curve = cp.zeros(BANDS, dtype=cp.float32)

    def step(k):
        nonlocal curve
        curve = 0.9 * curve + 0.1 * bands(settle(sky, noise, k))

    for k in range(4):
        step(k)
    cp.cuda.Device().synchronize()
    t0 = time.perf_counter()
    for k in range(4, 4 + STEPS):
        step(k)
    cp.cuda.Device().synchronize()
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {float(curve.sum()):.5g}")
    print(f"step_ms {ms:.4f}")


main()
