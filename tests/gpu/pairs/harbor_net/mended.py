"""Regression over berth sensors; a small residual network."""
import logging
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("harbor")

DIM, DEPTH, B = 1024, 6, 8192
STEPS, WARM = 250, 5
dev = torch.device("cuda")


class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.a, self.b = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = nn.Sequential(*[Unit() for _ in range(DEPTH)], nn.Linear(DIM, 12))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    data = torch.randn(4, B, DIM, device=dev)
    goal = torch.randn(4, B, 12, device=dev)

    def step(i):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            err = (net(data[i % 4]).float() - goal[i % 4]).square()
        per_output = err.mean(0)
        loss = per_output.mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        log.debug("step %d: %s bias gradient %s", i, per_output.detach(), net[-1].bias.grad)
        if i % 100 == 0:
            log.info("step %d loss %.4f", i, loss.item())
        return loss.detach()

    for i in range(WARM):
        loss = step(i)
    print(f"check {loss.item():.3f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(WARM, WARM + STEPS):
        step(i)
    torch.cuda.synchronize()
    print(f"step_ms {(time.perf_counter() - t0) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
