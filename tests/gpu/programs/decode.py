"""A decode loop as an inference server runs it: static key-value cache, one token a step, sampling on the host."""

import torch

torch.manual_seed(0)
LAYERS, HEADS, HEAD, BATCH, CONTEXT = 16, 16, 128, 8, 2048
HIDDEN = HEADS * HEAD
make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
weights = [(make(HIDDEN, 3 * HIDDEN), make(HIDDEN, HIDDEN), make(HIDDEN, 4 * HIDDEN), make(4 * HIDDEN, HIDDEN))
           for _ in range(LAYERS)]
cache = [make(2, BATCH, HEADS, CONTEXT, HEAD) for _ in range(LAYERS)]
head, embedding = make(HIDDEN, 32000), make(32000, HIDDEN)
token = torch.zeros(BATCH, dtype=torch.long, device="cuda")
with torch.inference_mode():
    for position in range(1024, 1024 + 32):
        x = embedding[token]
        for (qkv, out, up, down), kv in zip(weights, cache):
            q, k, v = (x @ qkv).view(BATCH, 3, HEADS, HEAD).unbind(1)
            kv[0, :, :, position], kv[1, :, :, position] = k, v
            keys, values = kv[:, :, :, : position + 1].unbind(0)
            y = torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), keys, values)
            x = x + y.reshape(BATCH, HIDDEN) @ out
            x = x + torch.nn.functional.silu(x @ up) @ down
        token = torch.multinomial((x @ head).float().softmax(-1), 1).squeeze(1)
        if token.tolist() == [0] * BATCH:
            break
print("tokens", token.tolist())
