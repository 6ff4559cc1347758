"""Active sonar: matched filtering of hydrophone channels, detection against a local floor."""
import time
from dataclasses import dataclass

import cupy as cp
import numpy as np


@dataclass
class Config:
    channels: int = 256
    samples: int = 60_000
    pulse: int = 2_048
    rate: float = 48_000.0
    f0: float = 4_000.0
    f1: float = 9_000.0
    floor: int = 500
    factor: float = 6.0
    echoes: int = 12
    warmup: int = 4
    steps: int = 40


def chirp(cfg):
    t = np.arange(cfg.pulse) / cfg.rate
    span = cfg.pulse / cfg.rate
    phase = 2 * np.pi * (cfg.f0 * t + 0.5 * (cfg.f1 - cfg.f0) / span * t * t)
    return cp.asarray((np.sin(phase) * np.hanning(cfg.pulse)).astype(np.float32))


def record(cfg, pulse, seed):
    """Noise on all channels with a few delayed and weakened copies of the pulse."""
    rng = np.random.default_rng(seed)
    x = cp.random.RandomState(seed).standard_normal((cfg.channels, cfg.samples), dtype=cp.float32)
    for _ in range(cfg.echoes):
        delay = int(rng.integers(0, cfg.samples - cfg.pulse - cfg.channels))
        gain = float(rng.uniform(0.1, 0.6))
        for c in range(0, cfg.channels, 16):
            x[c:c + 16, delay + c:delay + c + cfg.pulse] += gain * pulse
    return x


def smooth_length(n):
    """Smallest length not below n whose only prime factors are 2, 3 and 5."""
    best = 1 << (n - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            two = three
            while two < n:
                two *= 2
            best = min(best, two)
            three *= 3
        five *= 5
    return best


class MatchedFilter:
    """Correlates with the pulse by FFT, without wrap-around at the ends."""

    def __init__(self, cfg, pulse):
        self.keep = cfg.samples
        self.length = cfg.samples + pulse.size - 1
        self.response = cp.conj(cp.fft.rfft(pulse, self.length))[None, :]
        self.gain = float(1.0 / cp.sqrt((pulse ** 2).sum()))

    def __call__(self, x):
        spectrum = cp.fft.rfft(x, self.length, axis=-1)
        spectrum *= self.response
        return self.gain * cp.fft.irfft(spectrum, self.length, axis=-1)[:, :self.keep]


class Detector:
    def __init__(self, cfg):
        self.cfg = cfg
        self.hits = cp.zeros(cfg.channels, dtype=cp.int64)

    def local_floor(self, power):
        n = self.cfg.floor
        blocks = power[:, :power.shape[1] // n * n].reshape(power.shape[0], -1, n)
        return blocks, blocks.mean(axis=-1, keepdims=True)

    def __call__(self, filtered):
        blocks, floor = self.local_floor(filtered * filtered)
        above = blocks.max(axis=-1) > self.cfg.factor * floor[..., 0]
        self.hits += above.sum(axis=-1)
        return above


def beam_energy(filtered, cfg):
    """Sum of pairs of neighbouring channels, then energy of each beam."""
    beams = filtered[0::2] + filtered[1::2]
    return (beams * beams).mean(axis=-1)


def main():
    cfg = Config()
    pulse = chirp(cfg)
    pings = [record(cfg, pulse, seed) for seed in (1, 2, 3)]
    matched = MatchedFilter(cfg, pulse)
    detector = Detector(cfg)
    energy = cp.zeros(cfg.channels // 2, dtype=cp.float32)

    def step(i):
        filtered = matched(pings[i % len(pings)])
        detector(filtered)
        cp.multiply(energy, 0.9, out=energy)
        cp.add(energy, 0.1 * beam_energy(filtered, cfg), out=energy)

    for i in range(cfg.warmup):
        step(i)
    cp.cuda.Device().synchronize()
    start = time.perf_counter()
    for i in range(cfg.steps):
        step(i)
    cp.cuda.Device().synchronize()
    elapsed = time.perf_counter() - start
    print(f"hits {int(detector.hits.sum())} energy {float(energy.mean()):.5f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
