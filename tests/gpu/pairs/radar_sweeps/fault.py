"""Compresses radar pulses of twenty lengths by matched filters."""
import time

import cupy as cp
import numpy as np

ROWS = 8192
LENGTHS = [1024, 1120, 1152, 1200, 1280, 1344, 1400, 1440, 1536, 1568,
           1600, 1680, 1728, 1792, 1800, 1920, 1960, 2000, 2016, 2048]
STEPS = 40
PLANS = 16


def chirp(n):
    t = cp.arange(n, dtype=cp.float32) / n
    return cp.exp(1j * np.pi * 80 * t * t).astype(cp.complex64)


def compress(echo, replica):
    spectrum = cp.fft.fft(echo, axis=1)
    spectrum *= replica
    return cp.fft.ifft(spectrum, axis=1)


def sweep(buffer, replicas, power):
    for k, n in enumerate(LENGTHS):
        echo = buffer[: ROWS * n].reshape(ROWS, n)
        out = compress(echo, replicas[n])
        power[k] += cp.abs(out[:, : n // 8]).sum()


def main():
    cp.fft.config.get_plan_cache().set_size(PLANS)
    rng = cp.random.default_rng(0)
    flat = rng.standard_normal(2 * ROWS * max(LENGTHS), dtype=cp.float32)
    buffer = flat.view(cp.complex64)
    replicas = {n: cp.conj(cp.fft.fft(chirp(n))) for n in LENGTHS}
    power = cp.zeros(len(LENGTHS), dtype=cp.float64)
    for _ in range(3):
        sweep(buffer, replicas, power)
    cp.cuda.Device().synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        sweep(buffer, replicas, power)
    cp.cuda.Device().synchronize()
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {float(power.sum()):.5g}")
    print(f"step_ms {ms:.4f}")


main()
