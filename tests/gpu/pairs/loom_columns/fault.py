"""Normalises the columns of a table again and again while it is stirred."""
import time

import torch
import triton
import triton.language as tl

ROWS, COLS = 8192, 8192
STEPS = 300
TILE_ROWS, TILE_COLS = 2048, 1


@triton.jit
def column_stats(x_ptr, mean_ptr, rstd_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    c = tl.program_id(0) * C + tl.arange(0, C)
    r = tl.arange(0, R)
    total = tl.zeros((R, C), tl.float32)
    square = tl.zeros((R, C), tl.float32)
    for start in range(0, rows, R):
        at = (start + r)[:, None] * cols + c[None, :]
        x = tl.load(x_ptr + at)
        total += x
        square += x * x
    mean = tl.sum(total, 0) / rows
    var = tl.sum(square, 0) / rows - mean * mean
    tl.store(mean_ptr + c, mean)
    tl.store(rstd_ptr + c, 1.0 / tl.sqrt(var + 1e-5))


@triton.jit
def stir(x_ptr, mean_ptr, rstd_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c)
    y = (x - tl.load(mean_ptr + c)) * tl.load(rstd_ptr + c)
    tl.store(x_ptr + row * cols + c, y + 0.05 * tl.sin(y))


def main():
    torch.manual_seed(0)
    x = torch.rand(ROWS, COLS, device="cuda") * torch.arange(1, COLS + 1, device="cuda") / COLS
    mean = torch.empty(COLS, device="cuda")
    rstd = torch.empty(COLS, device="cuda")

    def step():
        column_stats[(COLS // TILE_COLS,)](x, mean, rstd, ROWS, COLS, TILE_ROWS, TILE_COLS)
        stir[(ROWS, COLS // 1024)](x, mean, rstd, COLS, 1024)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {x.abs().mean().item():.4f}")
    print(f"step_ms {ms:.4f}")


main()
