"""Tag recordings: each has its own length and is cut into equal chunks."""
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MELS, CHUNKS, BATCH = 80, 40, 16
RECORDINGS, WARM = 15, 4
dev = torch.device("cuda")
torch.backends.cudnn.benchmark = True


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [1, 64, 128, 256, 256, 256]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, stride=1 if i < 2 else 2)
            for i, (a, b) in enumerate(zip(widths, widths[1:])))
        self.head = nn.Linear(widths[-1], 50)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.head(x.mean((2, 3)))


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        net = Tagger().half().to(memory_format=torch.channels_last).eval()
    frames = list(range(320, 960, 3))
    random.Random(6).shuffle(frames)
    bank = torch.randn(BATCH, 1, MELS, 1000, device=dev).half()
    tally = torch.zeros(50, device=dev)

    def tag(recording):
        n = frames[recording]
        for c in range(CHUNKS):
            x = bank[..., c:c + n].contiguous(memory_format=torch.channels_last)
            tally.add_(torch.sigmoid(net(x).float()).mean(0))

    for r in range(WARM):
        tag(r)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for r in range(WARM, WARM + RECORDINGS):
        tag(r)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {tally.mean().item() / CHUNKS:.3f}")
    print(f"step_ms {took / RECORDINGS * 1e3:.4f}")


if __name__ == "__main__":
    main()
