"""A gated recurrent controller trained in mixed precision."""
import time

import torch
import torch.nn as nn

B, H, T = 256, 3072, 16
STEPS, WARM = 60, 4
dev = torch.device("cuda")


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(2 * H, 3 * H)
        self.norm = nn.LayerNorm(H)

    def forward(self, x, h):
        z, r, c = self.gates(torch.cat([x, h], 1)).chunk(3, 1)
        h = torch.lerp(h, torch.tanh(c * torch.sigmoid(r)), torch.sigmoid(z))
        return self.norm(h).to(torch.bfloat16)


class Controller(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.out = nn.Linear(H, 32)

    def forward(self, cues):
        h = torch.zeros(B, H, device=dev, dtype=torch.bfloat16)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for t in range(T):
                h = self.cell(cues[t], h)
            y = self.out(h)
        return y.float()


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = Controller()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    cues = torch.randn(T, B, H, device=dev, dtype=torch.bfloat16)
    goal = torch.randn(B, 32, device=dev)

    def step():
        loss = (net(cues) - goal).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(WARM):
        loss = step()
    print(f"check {loss.item():.2f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    print(f"step_ms {(time.perf_counter() - t0) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
