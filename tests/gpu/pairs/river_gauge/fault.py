"""Streaming forecasts: a stacked LSTM fed two samples at a time."""
import time
import warnings

import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
SENSORS, FEATS, HIDDEN, LAYERS, CHUNK = 64, 256, 1536, 4, 2
STEPS, WARM = 1500, 5
dev = torch.device("cuda")


class Gauge(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(FEATS, HIDDEN, num_layers=LAYERS)
        self.head = nn.Linear(HIDDEN, 8)

    def forward(self, x, state):
        y, state = self.rnn(x, state)
        return self.head(y[-1]), state


def make_checkpoint(model, seed):
    g = torch.Generator(device=dev).manual_seed(seed)
    return {n: torch.randn(p.shape, device=dev, generator=g) * 0.02 for n, p in model.named_parameters()}


def load(model, ckpt):
    for n, p in model.named_parameters():
        p.data = ckpt[n].to(p.dtype)
    return model.eval()


@torch.no_grad()
def main():
    with torch.device(dev):
        model = Gauge().half()
    ckpt = make_checkpoint(model, 11)
    model = load(model, ckpt)
    del ckpt
    g = torch.Generator(device=dev).manual_seed(2)
    feed = torch.randn(32, CHUNK, SENSORS, FEATS, device=dev, generator=g).half()
    zeros = torch.zeros(LAYERS, SENSORS, HIDDEN, device=dev, dtype=torch.half)
    state = (zeros, zeros.clone())
    score = torch.zeros(SENSORS, 8, device=dev)
    for i in range(WARM):
        y, state = model(feed[i % 32], state)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        y, state = model(feed[i % 32], state)
        score += y
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {score.abs().mean().item() / STEPS:.4f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
