"""Greedy decoding with a key/value memory per layer."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, PROMPT, NEW, D, H, LAYERS, VOCAB = 64, 1280, 160, 1024, 16, 8, 32000
WARM = 5
dev = torch.device("cuda")


class Memory:
    def __init__(self, k, v):
        self.k, self.v = k, v

    def extend(self, k, v):
        self.k = torch.cat([self.k, k], 2)
        self.v = torch.cat([self.v, v], 2)
        return self.k, self.v


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x, mem):
        q, k, v = self.qkv(self.n1(x)).view(B, 1, 3, H, D // H).permute(2, 0, 3, 1, 4)
        k, v = mem.extend(k, v)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(B, 1, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        embed = nn.Embedding(VOCAB, D).bfloat16()
        blocks = nn.ModuleList(Block() for _ in range(LAYERS)).bfloat16()
        head = nn.Linear(D, VOCAB, bias=False).bfloat16()
    mems = []
    for _ in range(LAYERS):
        kv = torch.randn(2, B, H, PROMPT, D // H, device=dev, dtype=torch.bfloat16)
        mems.append(Memory(kv[0].clone(), kv[1].clone()))
        del kv
    tok = torch.randint(0, VOCAB, (B, 1), device=dev)
    total = torch.zeros((), device=dev)

    def step(tok):
        x = embed(tok)
        for block, mem in zip(blocks, mems):
            x = block(x, mem)
        logits = head(x[:, -1])
        total.add_(x.float().abs().mean())
        return logits.argmax(-1, keepdim=True)

    for _ in range(WARM):
        tok = step(tok)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(NEW):
        tok = step(tok)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {total.item() / (NEW + WARM):.2f}")
    print(f"step_ms {took / NEW * 1e3:.4f}")


if __name__ == "__main__":
    main()
