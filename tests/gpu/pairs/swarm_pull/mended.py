"""Bodies that pull on one another, all pairs."""
import math
import time

import numpy as np
from numba import cuda

N = 32768
STEPS = 200
DT = np.float32(1e-3)
SOFT = np.float32(1e-2)
ZERO = np.float32(0)
ONE = np.float32(1)


@cuda.jit
def pull(px, py, pz, mass, vx, vy, vz):
    i = cuda.grid(1)
    if i >= px.size:
        return
    x = px[i]
    y = py[i]
    z = pz[i]
    ax = ZERO
    ay = ZERO
    az = ZERO
    for j in range(px.size):
        dx = px[j] - x
        dy = py[j] - y
        dz = pz[j] - z
        near = ONE / math.sqrt(dx * dx + dy * dy + dz * dz + SOFT)
        f = mass[j] * near * near * near
        ax += f * dx
        ay += f * dy
        az += f * dz
    vx[i] += DT * ax
    vy[i] += DT * ay
    vz[i] += DT * az


@cuda.jit
def move(p, v):
    i = cuda.grid(1)
    if i < p.size:
        p[i] += DT * v[i]


def main():
    rng = np.random.default_rng(0)
    pos = [cuda.to_device(rng.standard_normal(N).astype(np.float32)) for _ in range(3)]
    vel = [cuda.to_device(np.zeros(N, np.float32)) for _ in range(3)]
    mass = cuda.to_device((rng.random(N) / N).astype(np.float32))

    def step():
        pull[N // 128, 128](*pos, mass, *vel)
        for p, v in zip(pos, vel):
            move[N // 128, 128](p, v)

    for _ in range(4):
        step()
    cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        step()
    cuda.synchronize()
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    speed = np.sqrt(sum(v.copy_to_host().astype(np.float64) ** 2 for v in vel)).mean()
    print(f"check {speed:.5f}")
    print(f"step_ms {ms:.4f}")


main()
