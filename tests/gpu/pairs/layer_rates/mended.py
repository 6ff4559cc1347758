"""Train a deep narrow transformer; norms and biases get no weight decay."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, D, H, LAYERS = 16, 128, 384, 6, 16
STEPS, WARM = 60, 5
dev = torch.device("cuda")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4000, D)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(D, 20)

    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)).mean(1))


def rate(name):
    return 1e-4 if name.startswith("embed") else 3e-4


def param_groups(net):
    groups = {}
    for name, p in net.named_parameters():
        decay = 0.01 if p.ndim > 1 else 0.0
        key = (rate(name), decay)
        groups.setdefault(key, {"params": [], "lr": key[0], "weight_decay": decay})["params"].append(p)
    return list(groups.values())


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = Net()
    opt = torch.optim.AdamW(param_groups(net))
    ids = torch.randint(0, 4000, (4, B, T), device=dev)
    ys = torch.randint(0, 20, (4, B), device=dev)

    def step(i):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(ids[i % 4]), ys[i % 4])
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
    print(f"step_ms {(time.perf_counter() - t0) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
