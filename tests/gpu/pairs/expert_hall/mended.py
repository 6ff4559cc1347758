"""A routed feed-forward network: each token goes to one of many small experts."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, D, HID, EXPERTS, LAYERS = 8192, 512, 1024, 64, 4
STEPS, WARM = 60, 4
dev = torch.device("cuda")


class Hall(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.router = nn.Linear(D, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, D, HID) * D ** -0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HID, D) * HID ** -0.5)

    def groups(self, who):
        order = torch.argsort(who, stable=True)
        counts = torch.bincount(who, minlength=EXPERTS).tolist()
        yield from enumerate(order.split(counts))

    def forward(self, x):
        h = self.norm(x)
        weight, who = self.router(h).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for e, idx in self.groups(who):
            if idx.numel() == 0:
                continue
            y = F.gelu(h.index_select(0, idx) @ self.up[e]) @ self.down[e]
            out.index_copy_(0, idx, y * weight.index_select(0, idx)[:, None])
        return x + out


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = nn.Sequential(*[Hall() for _ in range(LAYERS)]).bfloat16()
    xs = torch.randn(4, TOKENS, D, device=dev, dtype=torch.bfloat16)
    for i in range(WARM):
        y = net(xs[i % 4])
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        y = net(xs[i % 4])
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {y.float().abs().mean().item():.3f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
