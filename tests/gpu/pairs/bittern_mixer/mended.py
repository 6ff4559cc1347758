"""Channel mixer for image features: gated products with a hand-written Triton matmul."""
import time
from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass
class Config:
    tokens: int = 8192
    width: int = 1024
    inner: int = 2048
    layers: int = 4
    block_m: int = 128
    block_n: int = 128
    block_k: int = 32
    group: int = 8
    warps: int = 8
    stages: int = 3
    warmup: int = 5
    steps: int = 40
    device: str = "cuda"


@triton.jit
def matmul_bias_kernel(a, b, bias, out, M, N, K,
                       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                       GROUP: tl.constexpr, SILU: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    per_group = GROUP * tiles_n
    first = (pid // per_group) * GROUP
    size = min(tiles_m - first, GROUP)
    tile_m = first + (pid % per_group) % size
    tile_n = (pid % per_group) // size
    rm = tile_m * BM + tl.arange(0, BM)
    rn = tile_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    acc += tl.load(bias + rn)[None, :].to(tl.float32)
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(out + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))


def matmul_bias(a, b, bias, cfg, silu):
    """a @ b + bias, all sizes multiples of the tile."""
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty(m, n, device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(m, cfg.block_m) * triton.cdiv(n, cfg.block_n),)
    matmul_bias_kernel[grid](a, b, bias, out, m, n, k,
                             BM=cfg.block_m, BN=cfg.block_n, BK=cfg.block_k,
                             GROUP=cfg.group, SILU=silu,
                             num_warps=cfg.warps, num_stages=cfg.stages)
    return out


class Mixer:
    def __init__(self, cfg, g):
        self.cfg = cfg

        def make(rows, cols):
            w = torch.randn(rows, cols, generator=g, device=cfg.device) * rows ** -0.5
            return w.to(torch.bfloat16), torch.zeros(cols, device=cfg.device, dtype=torch.bfloat16)

        self.gate, self.gate_bias = make(cfg.width, cfg.inner)
        self.value, self.value_bias = make(cfg.width, cfg.inner)
        self.down, self.down_bias = make(cfg.inner, cfg.width)
        self.norm = torch.ones(cfg.width, device=cfg.device, dtype=torch.bfloat16)

    def __call__(self, x):
        h = torch.nn.functional.rms_norm(x, (self.cfg.width,), self.norm, 1e-5)
        gate = matmul_bias(h, self.gate, self.gate_bias, self.cfg, silu=True)
        value = matmul_bias(h, self.value, self.value_bias, self.cfg, silu=False)
        return x + matmul_bias(gate * value, self.down, self.down_bias, self.cfg, silu=False)


class Pooler:
    """Running mean of the mixed features over the steps."""

    def __init__(self, cfg):
        self.mean = torch.zeros(cfg.width, device=cfg.device)

    def __call__(self, x):
        self.mean.lerp_(x.float().mean(0), 0.1)


def main():
    cfg = Config()
    g = torch.Generator(device=cfg.device).manual_seed(0)
    mixers = [Mixer(cfg, g) for _ in range(cfg.layers)]
    pooler = Pooler(cfg)
    inputs = [torch.randn(cfg.tokens, cfg.width, generator=g, device=cfg.device).to(torch.bfloat16)
              for _ in range(3)]

    def step(i):
        x = inputs[i % len(inputs)]
        for mixer in mixers:
            x = mixer(x)
        pooler(x)

    with torch.inference_mode():
        for i in range(cfg.warmup):
            step(i)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(cfg.steps):
            step(i)
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
    print(f"feature norm {pooler.mean.norm().item():.5f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
