"""Two-tower click model: user and item tables, small towers, in-batch negatives."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    users: int = 4_000_000
    items: int = 600_000
    dim: int = 64
    context: int = 24
    hidden: int = 512
    out: int = 128
    history: int = 8
    batch: int = 8192
    lr: float = 1e-3
    temperature: float = 0.07
    warmup: int = 10
    steps: int = 60
    device: str = "cuda"


class Tower(nn.Module):
    def __init__(self, width, cfg):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(width, cfg.hidden), nn.LayerNorm(cfg.hidden), nn.SiLU(),
            nn.Linear(cfg.hidden, cfg.hidden), nn.LayerNorm(cfg.hidden), nn.SiLU(),
            nn.Linear(cfg.hidden, cfg.out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class ClickModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user_table = nn.Embedding(cfg.users, cfg.dim)
        self.item_table = nn.Embedding(cfg.items, cfg.dim)
        self.user_tower = Tower(2 * cfg.dim + cfg.context, cfg)
        self.item_tower = Tower(cfg.dim, cfg)
        for table in (self.user_table, self.item_table):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, user, history, context, item):
        past = self.item_table(history).mean(1)
        u = self.user_tower(torch.cat((self.user_table(user), past, context), dim=-1))
        v = self.item_tower(self.item_table(item))
        return u, v


def make_optimizers(model, cfg):
    tables = list(model.user_table.parameters()) + list(model.item_table.parameters())
    towers = list(model.user_tower.parameters()) + list(model.item_tower.parameters())
    return [torch.optim.Adam(tables, lr=cfg.lr),
            torch.optim.Adam(towers, lr=cfg.lr, fused=True)]


def draw_items(n, cfg, g):
    """Popular items come first: a power law over the catalogue."""
    u = torch.rand(n, generator=g, device=cfg.device)
    return ((u ** 3) * (cfg.items - 1)).long()


def synth(cfg, count=6):
    g = torch.Generator(device=cfg.device).manual_seed(9)
    out = []
    for _ in range(count):
        user = torch.randint(0, cfg.users, (cfg.batch,), generator=g, device=cfg.device)
        history = draw_items(cfg.batch * cfg.history, cfg, g).view(cfg.batch, cfg.history)
        context = torch.randn(cfg.batch, cfg.context, generator=g, device=cfg.device)
        out.append((user, history, context, draw_items(cfg.batch, cfg, g)))
    return out


def in_batch_loss(u, v, item, cfg):
    scores = (u @ v.t()) / cfg.temperature
    same = item[:, None] == item[None, :]
    same.fill_diagonal_(False)
    scores = scores.masked_fill(same, -1e4)
    target = torch.arange(u.shape[0], device=u.device)
    return F.cross_entropy(scores, target)


def train_step(model, optimizers, batch, cfg):
    user, history, context, item = batch
    with torch.autocast(cfg.device, dtype=torch.bfloat16):
        u, v = model(user, history, context, item)
        loss = in_batch_loss(u, v, item, cfg)
    for opt in optimizers:
        opt.zero_grad(set_to_none=True)
    loss.backward()
    for opt in optimizers:
        opt.step()
    return loss.detach()


def main():
    cfg = Config()
    torch.manual_seed(0)
    with torch.device(cfg.device):
        model = ClickModel(cfg)
    optimizers = make_optimizers(model, cfg)
    data = synth(cfg)
    total = torch.zeros((), device=cfg.device)
    for step in range(cfg.warmup):
        train_step(model, optimizers, data[step % len(data)], cfg)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(cfg.steps):
        total += train_step(model, optimizers, data[step % len(data)], cfg)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    print(f"mean loss {total.item() / cfg.steps:.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
