"""A decode loop that keeps per-request token lists and refills finished slots."""
import time

import torch
import torch.nn as nn

B, D, LAYERS, VOCAB, EOS, LIMIT = 96, 1536, 6, 16384, 0, 64
STEPS, WARM = 600, 5
dev = torch.device("cuda")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.mix = nn.GRUCell(D, D)

    def forward(self, x, h):
        h = self.mix(self.norm(x), h)
        return x + h, h


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(dev):
        embed = nn.Embedding(VOCAB, D).half()
        layers = nn.ModuleList(Layer() for _ in range(LAYERS)).half()
        head = nn.Linear(D, VOCAB).half()
    state = [torch.zeros(B, D, device=dev, dtype=torch.half) for _ in range(LAYERS)]
    tokens = torch.randint(1, VOCAB, (B,), device=dev)
    replies = [[] for _ in range(B)]
    finished = []

    def forward(tok):
        x = embed(tok)
        for j, layer in enumerate(layers):
            x, state[j] = layer(x, state[j])
        return head(x).argmax(-1)

    def step(tok):
        nxt = forward(tok)
        ids = nxt
        for slot in range(B):
            t = int(ids[slot])
            replies[slot].append(t)
            if t == EOS or len(replies[slot]) == LIMIT:
                finished.append(sum(replies[slot]))
                replies[slot] = []
        return nxt

    for _ in range(WARM):
        tokens = step(tokens)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(STEPS):
        tokens = step(tokens)
    torch.cuda.synchronize()
    took = time.perf_counter() - t0
    print(f"check {sum(finished) / max(1, len(finished)):.1f}")
    print(f"step_ms {took / STEPS * 1e3:.4f}")


if __name__ == "__main__":
    main()
