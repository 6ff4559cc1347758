"""Forward a stack of gated feed-forward layers over a batch of tokens."""
import time

import torch
import torch.nn.functional as F

TOKENS, DIM, LAYERS = 8192, 2048, 4
HIDDEN = int(8 * DIM / 3)
COLS = HIDDEN
STEPS, WARM = 80, 5
dev = torch.device("cuda")


def fit(w, rows, cols):
    out = w.new_zeros(rows, cols)
    out[:w.shape[0], :w.shape[1]] = w
    return out


class GatedLayer:
    def __init__(self, gen):
        def draw(r, c):
            return (torch.randn(r, c, device=dev, generator=gen) / c ** 0.5).bfloat16()
        self.gate = fit(draw(HIDDEN, DIM), COLS, DIM)
        self.up = fit(draw(HIDDEN, DIM), COLS, DIM)
        self.down = fit(draw(DIM, HIDDEN), DIM, COLS)

    def __call__(self, x):
        h = F.rms_norm(x, (DIM,))
        h = F.silu(F.linear(h, self.gate)) * F.linear(h, self.up)
        return x + F.linear(h, self.down)


@torch.inference_mode()
def main():
    gen = torch.Generator(device=dev).manual_seed(21)
    layers = [GatedLayer(gen) for _ in range(LAYERS)]
    tokens = torch.randn(2, TOKENS, DIM, device=dev, generator=gen).bfloat16()

    def step(i):
        x = tokens[i % 2]
        for layer in layers:
            x = layer(x)
        return x

    for i in range(WARM):
        y = step(i)
    print(f"check {y.float().abs().mean().item():.3f}")
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(STEPS):
        y = step(i)
    torch.cuda.synchronize()
    print(f"step_ms {(time.perf_counter() - t0) / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
