"""Sea-floor segmentation from sonar tiles that worker processes make and augment."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    tile: int = 96
    tiles: int = 384
    batch: int = 16
    base: int = 48
    classes: int = 5
    workers: int = 4
    warm_epochs: int = 1
    epochs: int = 6
    lr: float = 1e-3
    device: str = "cuda"


class Tiles(Dataset):
    """Crops of one large synthetic map of depths; labels are bands of depth."""

    def __init__(self, cfg):
        self.cfg = cfg
        rng = np.random.default_rng(6)
        coarse = rng.standard_normal((64, 64)).astype(np.float32)
        self.map = np.kron(coarse, np.ones((16, 16), np.float32))
        self.map += 0.1 * rng.standard_normal(self.map.shape).astype(np.float32)
        self.edges = np.quantile(self.map, np.linspace(0, 1, cfg.classes + 1)[1:-1])

    def __len__(self):
        return self.cfg.tiles

    def __getitem__(self, index):
        rng = np.random.default_rng((index, int(time.time_ns() & 0xFFFF)))
        n = self.cfg.tile
        y, x = rng.integers(0, self.map.shape[0] - n, 2)
        depth = self.map[y:y + n, x:x + n]
        label = np.digitize(depth, self.edges)
        k = int(rng.integers(0, 4))
        depth, label = np.rot90(depth, k), np.rot90(label, k)
        noisy = depth + 0.05 * rng.standard_normal(depth.shape).astype(np.float32)
        return (torch.from_numpy(np.ascontiguousarray(noisy, dtype=np.float32))[None],
                torch.from_numpy(np.ascontiguousarray(label, dtype=np.int64)))


def make_loader(cfg):
    return DataLoader(
        Tiles(cfg),
        batch_size=cfg.batch,
        shuffle=True,
        drop_last=True,
        num_workers=cfg.workers,
        pin_memory=True,
        prefetch_factor=3,
    )


def pair(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        b = cfg.base
        self.d1, self.d2, self.d3 = pair(1, b), pair(b, 2 * b), pair(2 * b, 4 * b)
        self.u2 = nn.ConvTranspose2d(4 * b, 2 * b, 2, 2)
        self.c2 = pair(4 * b, 2 * b)
        self.u1 = nn.ConvTranspose2d(2 * b, b, 2, 2)
        self.c1 = pair(2 * b, b)
        self.out = nn.Conv2d(b, cfg.classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        y = self.c2(torch.cat((self.u2(c), b), dim=1))
        y = self.c1(torch.cat((self.u1(y), a), dim=1))
        return self.out(y)


def run_epoch(model, opt, loader, confusion, cfg):
    steps = 0
    for image, label in loader:
        image = image.to(cfg.device, non_blocking=True, memory_format=torch.channels_last)
        label = label.to(cfg.device, non_blocking=True)
        with torch.autocast(cfg.device, dtype=torch.bfloat16):
            scores = model(image)
            loss = F.cross_entropy(scores.float(), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        guess = scores.detach().argmax(1)
        cell = (label * cfg.classes + guess).flatten()
        confusion.scatter_add_(0, cell, torch.ones_like(cell, dtype=confusion.dtype))
        steps += 1
    return steps


def main():
    cfg = Config()
    torch.manual_seed(0)
    loader = make_loader(cfg)
    model = UNet(cfg).to(cfg.device, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    confusion = torch.zeros(cfg.classes ** 2, device=cfg.device)
    for _ in range(cfg.warm_epochs):
        run_epoch(model, opt, loader, confusion, cfg)
    confusion.zero_()
    torch.cuda.synchronize()
    start = time.perf_counter()
    steps = 0
    for _ in range(cfg.epochs):
        steps += run_epoch(model, opt, loader, confusion, cfg)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    table = confusion.view(cfg.classes, cfg.classes)
    print(f"pixel accuracy {(table.diag().sum() / table.sum()).item():.4f}")
    print(f"step_ms={1000 * elapsed / steps:.4f}")


if __name__ == "__main__":
    main()
