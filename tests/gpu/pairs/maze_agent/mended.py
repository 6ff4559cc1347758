"""Q-learning from a replay memory of maze transitions."""
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STATES, FEATS, ACTIONS, BATCH, FILLED = 50_000, 64, 6, 512, 300_000
STEPS, WARM = 200, 5
dev = torch.device("cuda")


def wander(rng, n):
    s = rng.randrange(STATES)
    for _ in range(n):
        a, s2 = rng.randrange(ACTIONS), rng.randrange(STATES)
        yield s, a, float(s2 % 7 == 0), s2, float(s2 % 50 == 0)
        s = s2


def build():
    return nn.Sequential(nn.Linear(FEATS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, ACTIONS))


def main():
    torch.manual_seed(0)
    rng = random.Random(7)
    memory = list(wander(rng, FILLED))
    fresh = wander(rng, 10 ** 9)
    feats = torch.randn(STATES, FEATS, device=dev)
    with torch.device(dev):
        q, target = build(), build()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-4, fused=True)

    def step():
        for _ in range(4):
            memory.append(next(fresh))
        s, a, r, s2, done = zip(*rng.sample(memory, BATCH))
        idx = torch.tensor([s, a, s2]).to(dev)
        r, done = torch.tensor([r, done]).to(dev)
        with torch.no_grad():
            goal = r + 0.97 * (1 - done) * target(feats[idx[2]]).max(1).values
        value = q(feats[idx[0]]).gather(1, idx[1][:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    total = torch.zeros((), device=dev)
    for _ in range(STEPS):
        total += step()
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {total.item() / STEPS:.5f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
