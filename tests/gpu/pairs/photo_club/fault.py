"""Train a gated bottleneck network on photos in mixed precision."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

B, C, MID, SIZE, BLOCKS = 48, 256, 128, 56, 6
STEPS, WARM = 40, 5
dev = torch.device("cuda")
torch.backends.cudnn.benchmark = True


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Linear(c, c // 8), nn.Linear(c // 8, c)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        s = x.view(n, c, h * w).mean(2)
        s = torch.sigmoid(self.b(F.relu(self.a(s))))
        return x * s[:, :, None, None]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(C, MID, 1, bias=False), nn.BatchNorm2d(MID)
        self.c2, self.n2 = nn.Conv2d(MID, MID, 3, padding=1, bias=False), nn.BatchNorm2d(MID)
        self.gate = Gate(MID)
        self.c3, self.n3 = nn.Conv2d(MID, C, 1, bias=False), nn.BatchNorm2d(C)

    def forward(self, x):
        y = F.relu(self.n1(self.c1(x)))
        y = self.gate(F.relu(self.n2(self.c2(y))))
        return F.relu(x + self.n3(self.c3(y)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, C, 4, stride=4)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(C, 100)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = Net().to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    xs = torch.randn(B, 3, SIZE * 4, SIZE * 4, device=dev).to(memory_format=torch.channels_last)
    ys = torch.randint(0, 100, (B,), device=dev)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(xs), ys)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    first = step()
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {first.item():.2f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
