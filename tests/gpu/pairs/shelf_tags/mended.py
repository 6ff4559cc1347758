"""Train a tag classifier on features of a pretrained vision encoder."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, D, H, LAYERS, TAGS = 64, 197, 768, 12, 8, 500
STEPS, WARM = 60, 4
dev = torch.device("cuda")


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


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3 * 16 * 16, D)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D)

    def forward(self, patches):
        return self.norm(self.blocks(self.embed(patches))).mean(1)


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        encoder, head = Encoder().eval(), nn.Sequential(nn.Linear(D, 1024), nn.GELU(), nn.Linear(1024, TAGS))
    opt = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=True)
    patches = torch.randn(4, B, T, 768, device=dev)
    tags = torch.randint(0, TAGS, (4, B), device=dev)

    def step(i):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.no_grad():
                feats = encoder(patches[i % 4])
            loss = F.cross_entropy(head(feats), tags[i % 4])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for i in range(WARM):
        loss = step(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        loss = step(i)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {loss.item():.2f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
