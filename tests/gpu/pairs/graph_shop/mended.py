"""Serve a small denoiser; each batch size has a recorded launch sequence."""
import functools
import time

import torch
import torch.nn as nn

DIM, DEPTH, ITERS = 1024, 24, 24
SIZES = [1, 2, 4, 8, 16, 32]
REQUESTS, WARM = 72, 12
dev = torch.device("cuda")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.fc = nn.Linear(DIM, DIM)

    def forward(self, x):
        return x + 0.1 * torch.tanh(self.fc(self.norm(x)))


torch.manual_seed(0)
with torch.device(dev):
    net = nn.Sequential(*[Layer() for _ in range(DEPTH)]).half().eval()


class Recorded:
    def __init__(self, batch):
        self.x = torch.zeros(batch, DIM, device=dev, dtype=torch.half)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(self.x)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.x.copy_(net(self.x) * 0.99)

    def run(self, noise):
        self.x.copy_(noise)
        for _ in range(ITERS):
            self.graph.replay()
        return self.x


@functools.lru_cache(maxsize=8)
def recorded(batch):
    return Recorded(batch)


@torch.no_grad()
def main():
    g = torch.Generator(device=dev).manual_seed(4)
    noise = torch.randn(max(SIZES), DIM, device=dev, generator=g).half()
    total = torch.zeros((), device=dev)
    for i in range(WARM):
        b = SIZES[i % len(SIZES)]
        recorded(b).run(noise[:b])
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(REQUESTS):
        b = SIZES[i % len(SIZES)]
        total += recorded(b).run(noise[:b]).float().abs().mean()
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {total.item() / REQUESTS:.4f}")
    print(f"step_ms {took / REQUESTS * 1e3:.4f}")


if __name__ == "__main__":
    main()
