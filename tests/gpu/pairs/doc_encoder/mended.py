"""Embed a pool of documents of various lengths with a small encoder."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DOCS, BATCH, D, H, LAYERS, VOCAB, LONGEST = 512, 32, 768, 12, 6, 30000, 1024
PASSES, WARM = 20, 2
dev = torch.device("cuda")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


def make_docs(seed):
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(4.6, 0.9, DOCS), 8, LONGEST).astype(int)
    return [rng.integers(1, VOCAB, n) for n in lengths]


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        embed = nn.Embedding(VOCAB, D).bfloat16()
        blocks = nn.ModuleList(Block() for _ in range(LAYERS)).bfloat16()
    docs = make_docs(8)
    vectors = torch.zeros(DOCS, D, device=dev)

    def embed_pool():
        order = sorted(range(DOCS), key=lambda i: len(docs[i]))
        for lo in range(0, DOCS, BATCH):
            part = order[lo:lo + BATCH]
            width = -(-max(len(docs[i]) for i in part) // 8) * 8
            ids = np.zeros((BATCH, width), dtype=np.int64)
            for row, i in enumerate(part):
                ids[row, :len(docs[i])] = docs[i]
            ids = torch.from_numpy(ids).pin_memory().to(dev, non_blocking=True)
            keep = ids != 0
            x = embed(ids)
            for block in blocks:
                x = block(x, keep[:, None, None, :])
            w = keep.unsqueeze(-1).float()
            where = torch.tensor(part, device=dev)
            vectors[where] = (x.float() * w).sum(1) / w.sum(1)

    for _ in range(WARM):
        embed_pool()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(PASSES):
        embed_pool()
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {vectors.abs().mean().item():.3f}")
    print(f"step_ms {took / PASSES * 1e3:.4f}")


if __name__ == "__main__":
    main()
