"""First-token service: run prompts and give the next token of each."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, D, H, LAYERS, VOCAB = 8, 1024, 1024, 16, 8, 102_400
STEPS, WARM = 80, 4
dev = torch.device("cuda")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.blocks(self.embed(tokens))
        logits = self.head(self.norm(x))
        return logits[:, -1].float()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        model = Model().bfloat16().eval()
    prompts = torch.randint(0, VOCAB, (4, B, T), device=dev)
    total = torch.zeros((), device=dev)

    def step(i):
        best = torch.log_softmax(model(prompts[i % 4]), -1).max(-1)
        total.add_(best.values.mean())
        return best.indices

    for i in range(WARM):
        step(i)
    total.zero_()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        step(i)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {total.item() / STEPS:.2f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
