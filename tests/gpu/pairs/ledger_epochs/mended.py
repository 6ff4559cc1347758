"""Fit a small network over many short epochs of a ledger table."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ROWS, COLS, BATCH = 16384, 512, 256
EPOCHS, WARM = 8, 3
dev = torch.device("cuda")


class Ledger(Dataset):
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.x = rng.standard_normal((ROWS, COLS), dtype=np.float32)
        self.y = rng.integers(0, 10, ROWS)

    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        row = self.x[i]
        scale = np.float32(1.0 + 0.1 * (i % 7))
        return torch.from_numpy((row - row.mean()) * scale), int(self.y[i])


def main():
    torch.manual_seed(0)
    loader = DataLoader(Ledger(3), batch_size=BATCH, num_workers=3, pin_memory=True, prefetch_factor=4, persistent_workers=True)
    with torch.device(dev):
        net = nn.Sequential(nn.Linear(COLS, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 10))
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)

    def epoch():
        total = torch.zeros((), device=dev)
        for x, y in loader:
            x, y = x.to(dev, non_blocking=True), y.to(dev, non_blocking=True)
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
        return total

    for _ in range(WARM):
        total = epoch()
    print(f"check {total.item() / (ROWS // BATCH):.3f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(EPOCHS):
        epoch()
    torch.cuda.synchronize()
    print(f"step_ms {(time.perf_counter() - t0) / EPOCHS * 1e3:.4f}")


if __name__ == "__main__":
    main()
