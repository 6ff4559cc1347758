"""Small vision transformer on bird crops, with an averaged copy of the weights."""
import copy
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    image: int = 96
    patch: int = 8
    width: int = 256
    heads: int = 4
    layers: int = 12
    classes: int = 200
    batch: int = 64
    decay: float = 0.999
    mixup: float = 0.2
    warmup: int = 10
    steps: int = 50
    device: str = "cuda"


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1 = nn.LayerNorm(cfg.width)
        self.norm2 = nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.proj = nn.Linear(cfg.width, cfg.width)
        self.up = nn.Linear(cfg.width, 4 * cfg.width)
        self.down = nn.Linear(4 * cfg.width, cfg.width)
        self.scale1 = nn.Parameter(torch.full((cfg.width,), 0.1))
        self.scale2 = nn.Parameter(torch.full((cfg.width,), 0.1))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.scale1 * self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.scale2 * self.down(F.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        tokens = (cfg.image // cfg.patch) ** 2
        self.patch = nn.Conv2d(3, cfg.width, cfg.patch, cfg.patch)
        self.place = nn.Parameter(torch.zeros(1, tokens, cfg.width))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Average:
    """Exponential moving average of a model's weights, for evaluation."""

    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.source = list(model.parameters())
        self.target = list(self.model.parameters())

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.target, self.source, 1.0 - self.decay)


def mix(x, y, cfg):
    lam = 1.0 - cfg.mixup * torch.rand(x.shape[0], 1, device=x.device)
    other = torch.randperm(x.shape[0], device=x.device)
    target = F.one_hot(y, cfg.classes).float()
    x = lam[..., None, None] * x + (1 - lam[..., None, None]) * x[other]
    return x, lam * target + (1 - lam) * target[other]


def synth(cfg, count=4):
    g = torch.Generator(device=cfg.device).manual_seed(8)
    return [(torch.randn(cfg.batch, 3, cfg.image, cfg.image, generator=g, device=cfg.device),
             torch.randint(0, cfg.classes, (cfg.batch,), generator=g, device=cfg.device))
            for _ in range(count)]


def train_step(model, average, opt, sched, x, y, cfg):
    x, target = mix(x, y, cfg)
    with torch.autocast(cfg.device, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), target)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    average.update()
    return loss.detach()


def main():
    cfg = Config()
    torch.manual_seed(0)
    model = VisionTransformer(cfg).to(cfg.device)
    average = Average(model, cfg.decay)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.warmup + cfg.steps)
    data = synth(cfg)
    total = torch.zeros((), device=cfg.device)
    for step in range(cfg.warmup):
        train_step(model, average, opt, sched, *data[step % len(data)], cfg)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(cfg.steps):
        total += train_step(model, average, opt, sched, *data[step % len(data)], cfg)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    with torch.no_grad():
        held = F.cross_entropy(average.model(data[0][0]), data[0][1])
    print(f"mean loss {total.item() / cfg.steps:.4f}, averaged model {held.item():.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
