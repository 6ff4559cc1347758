"""Convolve a bank of signals with room responses and mix them."""
import time

import torch

CHANNELS, SAMPLES, TAPS = 512, 64000, 1538
STEPS, WARM = 300, 5
dev = torch.device("cuda")


def plan_length(samples, taps):
    return samples + taps - 1


class Room:
    def __init__(self, responses):
        self.n = plan_length(SAMPLES, TAPS)
        self.out = SAMPLES + TAPS - 1
        self.spec = torch.fft.rfft(responses, n=self.n)

    def __call__(self, x):
        s = torch.fft.rfft(x, n=self.n)
        s *= self.spec
        return torch.fft.irfft(s, n=self.n)[:, :self.out]


def main():
    g = torch.Generator(device=dev).manual_seed(5)
    decay = torch.exp(-torch.arange(TAPS, device=dev) / 300.0)
    resp = torch.randn(CHANNELS, TAPS, device=dev, generator=g) * decay
    resp /= resp.norm(dim=1, keepdim=True)
    room = Room(resp)
    signals = torch.randn(CHANNELS, SAMPLES, device=dev, generator=g)
    gains = torch.linspace(0.2, 1.0, CHANNELS, device=dev)[:, None]
    bus = torch.zeros(SAMPLES + TAPS - 1, device=dev)

    def step(k):
        wet = room(signals)
        wet = torch.tanh(wet * gains)
        bus.mul_(0.9).add_(wet.mean(0))
        signals.mul_(0.999).add_(wet[:, :SAMPLES], alpha=1e-3)

    with torch.no_grad():
        for k in range(WARM):
            step(k)
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for k in range(STEPS):
            step(k)
        torch.cuda.synchronize()
        took = time.perf_counter() - t0
    print(f"check {bus.abs().mean().item():.5f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
