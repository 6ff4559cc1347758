"""Encoder training with bucketed relative positions."""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, D, H, LAYERS, BUCKETS = 16, 384, 1024, 16, 4, 32
STEPS, WARM = 40, 4
dev = torch.device("cuda")


def bucket_of(rel):
    half = BUCKETS // 2
    out = (rel > 0).long() * half
    n = rel.abs()
    exact = half // 2
    far = exact + (torch.log(n.float().clamp(min=1) / exact) / math.log(128 / exact) * (half - exact)).long()
    return out + torch.where(n < exact, n, far.clamp(max=half - 1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x, bias):
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        att = torch.matmul(q, k.transpose(-1, -2)) * (D // H) ** -0.5 + bias
        y = torch.matmul(att.softmax(-1), v).transpose(1, 2).reshape(B, T, D)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(BUCKETS, H) * 0.1)
        pos = torch.arange(T)
        self.register_buffer("bucket", bucket_of(pos[None, :] - pos[:, None]))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(D, 64)

    def forward(self, x):
        bias = self.table[self.bucket].permute(2, 0, 1)
        bias = bias.to(torch.bfloat16)
        for b in self.blocks:
            x = b(x, bias)
        return self.head(x.mean(1))


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    xs = torch.randn(4, B, T, D, device=dev)
    ys = torch.randint(0, 64, (4, B), device=dev)

    def step(i):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(xs[i % 4]), ys[i % 4])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for i in range(WARM):
        first = step(i)
    print(f"check {first.item():.3f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        step(i)
    torch.cuda.synchronize()
    print(f"step_ms {(time.perf_counter() - t0) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
