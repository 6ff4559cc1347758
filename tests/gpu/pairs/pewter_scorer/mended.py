"""Next-action scorer: a decoder reads a session and ranks candidate actions at its end."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    actions: int = 65536
    context: int = 1024
    batch: int = 16
    width: int = 1024
    heads: int = 16
    layers: int = 8
    top: int = 50
    warmup: int = 5
    steps: int = 40
    device: str = "cuda"


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1 = RMSNorm(cfg.width)
        self.norm2 = RMSNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.proj = nn.Linear(cfg.width, cfg.width, bias=False)
        self.gate = nn.Linear(cfg.width, 2 * cfg.width, bias=False)
        self.up = nn.Linear(cfg.width, 2 * cfg.width, bias=False)
        self.down = nn.Linear(2 * cfg.width, cfg.width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Scorer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.action = nn.Embedding(cfg.actions, cfg.width)
        self.place = nn.Embedding(cfg.context, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.actions, bias=False)
        self.head.weight = self.action.weight
        nn.init.normal_(self.action.weight, std=0.02)

    def forward(self, session):
        t = session.shape[1]
        h = self.action(session) + self.place(torch.arange(t, device=session.device))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h[:, -1]))
        return logits.float()


class Ranker:
    """Scores sessions, blocks the actions already taken, keeps the best few."""

    def __init__(self, model, cfg):
        self.model = model
        self.cfg = cfg
        self.served = torch.zeros(cfg.actions, device=cfg.device)

    @torch.inference_mode()
    def rank(self, session):
        scores = self.model(session)
        scores = scores.scatter(1, session, float("-inf"))
        best, index = torch.topk(scores, self.cfg.top, dim=-1)
        weight = torch.softmax(best, dim=-1)
        self.served.index_add_(0, index.flatten(), weight.flatten())
        return index, weight


def sessions(cfg, count=4):
    g = torch.Generator(device=cfg.device).manual_seed(21)
    return [torch.randint(0, cfg.actions, (cfg.batch, cfg.context), generator=g, device=cfg.device)
            for _ in range(count)]


def main():
    cfg = Config()
    torch.manual_seed(0)
    with torch.device(cfg.device):
        model = Scorer(cfg)
    model = model.to(torch.bfloat16).eval()
    ranker = Ranker(model, cfg)
    data = sessions(cfg)
    for step in range(cfg.warmup):
        ranker.rank(data[step % len(data)])
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(cfg.steps):
        index, weight = ranker.rank(data[step % len(data)])
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    print(f"mass on the best action {weight[:, 0].mean().item():.5f}")
    print(f"actions served {int((ranker.served > 0).sum())}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
