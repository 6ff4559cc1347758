"""Train a causal language block stack on long windows."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, D, H, LAYERS = 2, 4096, 1024, 16, 4
STEPS, WARM = 40, 4
dev = torch.device("cuda")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.register_buffer("seen", torch.ones(T, T, dtype=torch.bool).tril(), persistent=False)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.seen)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8000, D)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(D, 8000, bias=False)

    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)))


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = Stack()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, 8000, (4, B, T + 1), device=dev)

    def step(i):
        part = ids[i % 4]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(part[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for i in range(WARM):
        loss = step(i)
    print(f"check {loss.item():.2f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        step(i)
    torch.cuda.synchronize()
    print(f"step_ms {(time.perf_counter() - t0) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
