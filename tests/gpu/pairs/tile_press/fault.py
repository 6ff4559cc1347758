"""Push tiles of a large matrix through the GPU and bring the results back."""
import time

import torch

TILES, ROWS, COLS, LANES = 12, 4096, 2048, 3
STEPS, WARM = 60, 3
dev = torch.device("cuda")
torch.backends.cuda.matmul.allow_tf32 = False


class Press:
    def __init__(self):
        g = torch.Generator().manual_seed(9)
        one = torch.randn(ROWS, COLS, generator=g)
        self.src = [one.roll(k, 0).pin_memory() for k in range(TILES)]
        self.dst = [torch.empty(ROWS, COLS).pin_memory() for _ in range(TILES)]
        self.w = torch.randn(COLS, COLS, generator=g).to(dev) / COLS ** 0.5
        self.lanes = [torch.cuda.Stream() for _ in range(LANES)]
        self.x = [torch.empty(ROWS, COLS, device=dev) for _ in range(LANES)]
        self.y = [torch.empty(ROWS, COLS, device=dev) for _ in range(LANES)]

    def run(self):
        main = torch.cuda.current_stream()
        for k in range(TILES):
            lane = self.lanes[k % LANES]
            x, y = self.x[k % LANES], self.y[k % LANES]
            lane.wait_stream(main)
            with torch.cuda.stream(lane):
                x.copy_(self.src[k], non_blocking=True)
                torch.mm(x, self.w, out=y)
                y.tanh_()
                self.dst[k].copy_(y, non_blocking=True)
            main.wait_stream(lane)


@torch.no_grad()
def main():
    press = Press()
    for _ in range(WARM):
        press.run()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        press.run()
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {sum(d.abs().mean().item() for d in press.dst) / TILES:.5f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
