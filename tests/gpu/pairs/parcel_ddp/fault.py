"""Train a parcel-sorting transformer under DistributedDataParallel."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

B, T, D, H, LAYERS = 16, 256, 1024, 16, 6
BACKEND = "gloo"
STEPS, WARM = 50, 5
dev = torch.device("cuda", 0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(D, 200)

    def forward(self, x):
        return self.head(self.blocks(x).mean(1))


def main():
    torch.cuda.set_device(dev)
    dist.init_process_group(BACKEND, store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    with dev:
        net = Sorter()
    net = DDP(net, device_ids=[0], gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    xs = torch.randn(4, B, T, D, device=dev)
    ys = torch.randint(0, 200, (4, B), device=dev)

    def step(i):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(xs[i % 4]), ys[i % 4])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for i in range(WARM):
        loss = step(i)
    print(f"check {loss.item():.3f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        step(i)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    dist.destroy_process_group()
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
