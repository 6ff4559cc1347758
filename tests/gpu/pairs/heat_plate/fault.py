"""Explicit heat flow on a plate with a varying conductivity map."""
import time

import numpy as np
import torch

N, DT = 6144, 0.1
STEPS, WARM = 400, 5
dev = torch.device("cuda")


def conductivity(n):
    y = np.linspace(0.0, 1.0, n)
    k = 0.5 + 0.4 * np.sin(6 * np.pi * y)[:, None] * np.cos(4 * np.pi * y)[None, :]
    return torch.from_numpy(k[1:-1, 1:-1].copy())


def advance(u, k):
    c = u[1:-1, 1:-1]
    lap = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * c
    inner = c + DT * k * lap
    return torch.nn.functional.pad(inner, (1, 1, 1, 1))


@torch.no_grad()
def main():
    k = conductivity(N).to(dev)
    g = torch.Generator(device=dev).manual_seed(0)
    u = torch.rand(N, N, device=dev, generator=g)
    for _ in range(WARM):
        u = advance(u, k)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        u = advance(u, k)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {u.double().mean().item():.5f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
