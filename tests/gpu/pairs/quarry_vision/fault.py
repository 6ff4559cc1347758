"""Rock-sample image classifier: residual network with channel gates, mixed precision."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    image: int = 160
    batch: int = 96
    classes: int = 40
    widths: tuple = (64, 128, 256, 512)
    depths: tuple = (2, 3, 4, 2)
    lr: float = 0.05
    warmup: int = 8
    steps: int = 30
    device: str = "cuda"


class ChannelGate(nn.Module):
    """Squeeze the picture to one number a channel, weigh the channels by it."""

    def __init__(self, channels, squeeze=8):
        super().__init__()
        self.down = nn.Linear(channels, channels // squeeze)
        self.up = nn.Linear(channels // squeeze, channels)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.contiguous()
        pooled = x.view(b, c, h * w).mean(-1)
        gate = torch.sigmoid(self.up(F.relu(self.down(pooled))))
        return x * gate.view(b, c, 1, 1)


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.gate = ChannelGate(cout)
        self.skip = None
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False),
                                      nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.gate(self.bn2(self.conv2(y)))
        s = x if self.skip is None else self.skip(x)
        return F.relu(y + s)


class QuarryNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, cfg.widths[0], 5, 2, 2, bias=False),
                                  nn.BatchNorm2d(cfg.widths[0]), nn.ReLU())
        blocks = []
        cin = cfg.widths[0]
        for i, (width, depth) in enumerate(zip(cfg.widths, cfg.depths)):
            for j in range(depth):
                stride = 2 if i > 0 and j == 0 else 1
                blocks.append(Residual(cin, width, stride))
                cin = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(cin, cfg.classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Augment(nn.Module):
    """Mirror and change of brightness, one draw for each image, on the device."""

    def forward(self, x):
        b = x.shape[0]
        flip = torch.rand(b, 1, 1, 1, device=x.device) < 0.5
        x = torch.where(flip, x.flip(-1), x)
        gain = 0.8 + 0.4 * torch.rand(b, 1, 1, 1, device=x.device)
        return (x * gain).to(memory_format=torch.channels_last)


def synth(cfg, count=3):
    g = torch.Generator(device=cfg.device).manual_seed(2)
    out = []
    for _ in range(count):
        x = torch.randn(cfg.batch, 3, cfg.image, cfg.image, generator=g, device=cfg.device)
        y = torch.randint(0, cfg.classes, (cfg.batch,), generator=g, device=cfg.device)
        out.append((x.to(memory_format=torch.channels_last), y))
    return out


def train_step(model, augment, opt, x, y, cfg):
    with torch.no_grad():
        x = augment(x)
    with torch.autocast(cfg.device, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    cfg = Config()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    model = QuarryNet(cfg).to(cfg.device, memory_format=torch.channels_last)
    augment = Augment()
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4)
    data = synth(cfg)
    total = torch.zeros((), device=cfg.device)
    for step in range(cfg.warmup):
        train_step(model, augment, opt, *data[step % len(data)], cfg)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(cfg.steps):
        total += train_step(model, augment, opt, *data[step % len(data)], cfg)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    print(f"mean loss {total.item() / cfg.steps:.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
