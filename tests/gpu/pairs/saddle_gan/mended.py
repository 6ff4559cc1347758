"""Adversarial texture generator, 64x64, hinge loss, mixed precision."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    latent: int = 128
    base: int = 128
    d_base: int = 64
    batch: int = 256
    lr_g: float = 1e-4
    lr_d: float = 4e-4
    warmup: int = 6
    steps: int = 30
    device: str = "cuda"


class Up(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(cout)

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


class Generator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.base
        self.fc = nn.Linear(cfg.latent, 4 * w * 16)
        self.ups = nn.Sequential(Up(4 * w, 4 * w), Up(4 * w, 2 * w), Up(2 * w, w), Up(w, w))
        self.out = nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, z):
        x = self.fc(z).view(z.shape[0], -1, 4, 4).to(memory_format=torch.channels_last)
        return torch.tanh(self.out(self.ups(x)))


class Discriminator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.d_base
        chain, cin = [], 3
        for cout in (w, 2 * w, 4 * w, 8 * w):
            chain += [nn.Conv2d(cin, cout, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
            cin = cout
        self.chain = nn.Sequential(*chain)
        self.score = nn.Linear(cin * 16, 1)

    def forward(self, x):
        return self.score(self.chain(x).flatten(1)).squeeze(1)


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def discriminator_step(gen, dis, opt, real, cfg):
    set_trainable(dis, True)
    z = torch.randn(real.shape[0], cfg.latent, device=cfg.device)
    with torch.autocast(cfg.device, dtype=torch.bfloat16):
        fake = gen(z)
        loss = F.relu(1 - dis(real)).mean() + F.relu(1 + dis(fake.detach())).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def generator_step(gen, dis, opt, cfg):
    set_trainable(dis, False)
    z = torch.randn(cfg.batch, cfg.latent, device=cfg.device)
    with torch.autocast(cfg.device, dtype=torch.bfloat16):
        loss = -dis(gen(z)).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def synth(cfg, count=4):
    """Striped pictures with a random direction and wave length."""
    axis = torch.linspace(-1, 1, 64, device=cfg.device)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    out = []
    for _ in range(count):
        angle = torch.rand(cfg.batch, 1, 1, device=cfg.device) * 6.2832
        wave = 6 + 20 * torch.rand(cfg.batch, 1, 1, device=cfg.device)
        stripe = torch.sin(wave * (xx * angle.cos() + yy * angle.sin()))
        tint = torch.rand(cfg.batch, 3, 1, 1, device=cfg.device)
        out.append((stripe[:, None] * tint).to(memory_format=torch.channels_last))
    return out


def main():
    cfg = Config()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    gen = Generator(cfg).to(cfg.device, memory_format=torch.channels_last)
    dis = Discriminator(cfg).to(cfg.device, memory_format=torch.channels_last)
    opt_g = torch.optim.Adam(gen.parameters(), lr=cfg.lr_g, betas=(0.0, 0.9), fused=True)
    opt_d = torch.optim.Adam(dis.parameters(), lr=cfg.lr_d, betas=(0.0, 0.9), fused=True)
    data = synth(cfg)
    track = torch.zeros(2, device=cfg.device)
    for step in range(cfg.warmup):
        discriminator_step(gen, dis, opt_d, data[step % len(data)], cfg)
        generator_step(gen, dis, opt_g, cfg)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(cfg.steps):
        track[0] += discriminator_step(gen, dis, opt_d, data[step % len(data)], cfg)
        track[1] += generator_step(gen, dis, opt_g, cfg)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    d_loss, g_loss = (track / cfg.steps).tolist()
    print(f"d_loss {d_loss:.4f} g_loss {g_loss:.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
