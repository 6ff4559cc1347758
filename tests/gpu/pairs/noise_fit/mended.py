"""Smooth a noisy field with a compiled mixing model."""
import time

import torch
import torch.nn as nn

N = 4096
STEPS, WARM = 400, 12
dev = torch.device("cuda")
torch.set_float32_matmul_precision("high")


class Smoother(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(N, N) * N ** -0.5)
        self.a, self.b = nn.Parameter(torch.full((N,), 0.3)), nn.Parameter(torch.full((N,), 0.1))
        self.calls = 0

    def forward(self, u):
        v = u @ self.mix
        v = torch.tanh(v * self.a + self.b)
        w = v * torch.sigmoid(u) + u * torch.exp(-v * v)
        w = w - 0.1 * torch.sin(3.0 * w) * torch.cos(v)
        w = w / torch.sqrt(1.0 + w * w)
        return 0.5 * (u + w) + 0.01 * torch.abs(v)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        model = Smoother()
    fast = torch.compile(model)
    u = torch.randn(N, N, device=dev)
    for _ in range(WARM):
        u = fast(u)
        model.calls += 1
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        u = fast(u)
        model.calls += 1
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"{model.calls} calls")
    print(f"check {u.abs().mean().item():.3f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
