"""Skip-gram training with negative samples on a synthetic corpus."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, BATCH, NEG = 600_000, 256, 8192, 4096
STEPS, WARM = 150, 5
dev = torch.device("cuda")


class NegativeSampler:
    def __init__(self, counts, seed):
        self.rng = np.random.RandomState(seed)
        p = counts ** 0.75
        self.p = p / p.sum()

    def draw(self, n):
        return self.rng.choice(len(self.p), size=n, p=self.p)


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Embedding(VOCAB, DIM, sparse=True)
        self.context = nn.Embedding(VOCAB, DIM, sparse=True)
        nn.init.normal_(self.centre.weight, std=0.05)
        nn.init.normal_(self.context.weight, std=0.05)

    def forward(self, c, pos, neg):
        v = self.centre(c)
        good = (v * self.context(pos)).sum(1)
        bad = v @ self.context(neg).t()
        return -F.logsigmoid(good).mean() - F.logsigmoid(-bad).mean()


def main():
    torch.manual_seed(0)
    counts = 1.0 / (np.arange(VOCAB) + 10.0) * 1e7
    sampler = NegativeSampler(counts, seed=3)
    gen = torch.Generator(device=dev).manual_seed(1)
    corpus = torch.randint(0, VOCAB, (2, 64 * BATCH), device=dev, generator=gen)
    with torch.device(dev):
        model = SkipGram()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(i):
        lo = (i % 64) * BATCH
        neg = torch.from_numpy(sampler.draw(NEG)).to(dev)
        loss = model(corpus[0, lo:lo + BATCH], corpus[1, lo:lo + BATCH], neg)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for i in range(WARM):
        step(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    total = torch.zeros((), device=dev)
    for i in range(WARM, WARM + STEPS):
        total += step(i)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {total.item() / STEPS:.4f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
