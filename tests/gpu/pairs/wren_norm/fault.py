"""Packed-token inference of a feed-forward stack with a fused norm kernel in Triton."""
import time
from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass
class Config:
    width: int = 1024
    layers: int = 6
    mean_tokens: int = 12_288
    spread: int = 4096
    changes: int = 5
    warmup: int = 10
    steps: int = 50
    device: str = "cuda"


@triton.autotune(
    configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)],
    key=["rows", "width"],
)
@triton.jit
def add_norm_kernel(x, res, weight, out, rows, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    live = col < width
    base = row * width
    a = tl.load(x + base + col, mask=live, other=0.0).to(tl.float32)
    a += tl.load(res + base + col, mask=live, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(a * a, axis=0) / width + eps)
    w = tl.load(weight + col, mask=live, other=0.0).to(tl.float32)
    tl.store(out + base + col, (a * scale * w).to(tl.bfloat16), mask=live)


def add_norm(x, res, weight, eps=1e-5):
    out = torch.empty_like(x)
    rows, width = x.shape
    add_norm_kernel[(rows,)](x, res, weight, out, rows, width, eps,
                             BLOCK=triton.next_power_of_2(width))
    return out


class Layer:
    def __init__(self, cfg, g):
        def weight(*shape):
            w = torch.randn(shape, generator=g, device=cfg.device) * shape[0] ** -0.5
            return w.to(torch.bfloat16)
        self.up = weight(cfg.width, 4 * cfg.width)
        self.down = weight(4 * cfg.width, cfg.width)
        self.norm = torch.ones(cfg.width, device=cfg.device, dtype=torch.bfloat16)

    def __call__(self, x):
        y = torch.nn.functional.gelu(x @ self.up) @ self.down
        return add_norm(y, x, self.norm)


class Packer:
    """Joins the requests that wait into one strip of tokens; the load changes now and then."""

    def __init__(self, cfg):
        self.cfg = cfg
        g = torch.Generator().manual_seed(13)
        count = cfg.changes + 1
        offset = torch.randint(-cfg.spread, cfg.spread, (count,), generator=g)
        self.sizes = [(cfg.mean_tokens + int(o)) // 16 * 16 for o in offset.tolist()]
        largest = max(self.sizes)
        self.source = torch.randn(largest, cfg.width, device=cfg.device).to(torch.bfloat16)

    def strip(self, phase):
        return self.source[:self.sizes[phase % len(self.sizes)]]


class Server:
    def __init__(self, cfg):
        g = torch.Generator(device=cfg.device).manual_seed(0)
        self.layers = [Layer(cfg, g) for _ in range(cfg.layers)]
        self.total = torch.zeros((), device=cfg.device)

    def handle(self, strip):
        x = strip
        for layer in self.layers:
            x = layer(x)
        self.total += x.float().abs().mean()
        return x


def main():
    cfg = Config()
    torch.manual_seed(0)
    packer = Packer(cfg)
    server = Server(cfg)
    with torch.inference_mode():
        for _ in range(cfg.warmup):
            server.handle(packer.strip(0))
        torch.cuda.synchronize()
        start = time.perf_counter()
        for step in range(cfg.steps):
            phase = 1 + step * cfg.changes // cfg.steps
            server.handle(packer.strip(phase))
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
    print(f"sizes {packer.sizes} mean {server.total.item() / (cfg.steps + cfg.warmup):.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
