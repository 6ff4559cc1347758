"""Byte-level language model trained on long documents (vessel movement reports)."""
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 256
    context: int = 4096
    batch: int = 4
    width: int = 768
    heads: int = 12
    layers: int = 6
    lr: float = 3e-4
    warmup_steps: int = 6
    steps: int = 30
    clip: float = 1.0
    log_every: int = 10
    device: str = "cuda"


class Rotary(nn.Module):
    def __init__(self, dim, context):
        super().__init__()
        freq = 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim))
        angle = torch.outer(torch.arange(context).float(), freq)
        self.register_buffer("cos", angle.cos().to(torch.bfloat16), persistent=False)
        self.register_buffer("sin", angle.sin().to(torch.bfloat16), persistent=False)

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * self.cos - b * self.sin, a * self.sin + b * self.cos), dim=-1)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.out = nn.Linear(cfg.width, cfg.width, bias=False)
        self.rotary = Rotary(cfg.width // cfg.heads, cfg.context)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1 = nn.LayerNorm(cfg.width)
        self.attn = Attention(cfg)
        self.norm2 = nn.LayerNorm(cfg.width)
        self.up = nn.Linear(cfg.width, 4 * cfg.width)
        self.down = nn.Linear(4 * cfg.width, cfg.width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class HarbourModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def learning_rate(step, cfg):
    total = cfg.steps + cfg.warmup_steps
    if step < cfg.warmup_steps:
        return cfg.lr * (step + 1) / cfg.warmup_steps
    return 0.5 * cfg.lr * (1 + math.cos(math.pi * step / total))


def batches(cfg, count=4):
    g = torch.Generator().manual_seed(11)
    return [torch.randint(0, cfg.vocab, (cfg.batch, cfg.context + 1), generator=g).to(cfg.device)
            for _ in range(count)]


def train_step(model, opt, tokens, step, cfg):
    for group in opt.param_groups:
        group["lr"] = learning_rate(step, cfg)
    with torch.autocast(cfg.device, dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
    opt.step()
    return loss.detach()


def main():
    cfg = Config()
    torch.manual_seed(0)
    model = HarbourModel(cfg).to(cfg.device)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    data = batches(cfg)
    history = []
    for step in range(cfg.warmup_steps):
        train_step(model, opt, data[step % len(data)], step, cfg)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(cfg.warmup_steps, cfg.warmup_steps + cfg.steps):
        loss = train_step(model, opt, data[step % len(data)], step, cfg)
        if step % cfg.log_every == 0:
            history.append(loss)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    print("losses", [round(x, 3) for x in torch.stack(history).tolist()])
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
