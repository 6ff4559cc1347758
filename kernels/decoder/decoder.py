"""A decoder-only language model with a key-value cache, small enough for a CPU.

RMS normalisation, rotary positions, attention with as many key-value heads as `[model]` says, a
gated MLP. `generate` runs the prompt at once (`LLM@prefill`), then one token after another
(`LLM@decode_all`, with an `LLM@decode_step` for each). Another decoder of this kind is another
kernel.toml that names this file.
"""

import torch
import torch.nn.functional as F
from torch import nn

try:
    from rgpu_harness import region
except ImportError:  # run without rgpu
    from contextlib import nullcontext

    def region(name, domain=""):
        return nullcontext()


def rotated(x, positions):
    """Rotary positions: pairs of channels turn by angles that grow with the position."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = positions[:, None].float() * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, kv_heads * self.size, bias=False)
        self.values = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, positions, cache):
        batch, tokens, width = x.shape
        first, last = int(cache.used), int(cache.used) + tokens
        y = self.before(x)
        shaped = lambda z, heads: z.view(batch, tokens, heads, self.size).transpose(1, 2)
        query = rotated(shaped(self.query(y), self.heads), positions)
        keys, values = cache.of(self)
        keys[:, :, first:last] = rotated(shaped(self.keys(y), self.kv_heads), positions)
        values[:, :, first:last] = shaped(self.values(y), self.kv_heads)
        repeat = self.heads // self.kv_heads
        k, v = (t[:, :, :last].repeat_interleave(repeat, dim=1) for t in (keys, values))
        y = F.scaled_dot_product_attention(query, k, v, is_causal=tokens > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Cache:
    """Keys and values of every layer, for as many tokens as there will be."""

    def __init__(self, model, batch, tokens):
        weight = model.embed.weight
        make = lambda layer: torch.zeros(batch, layer.kv_heads, tokens, layer.size, dtype=weight.dtype, device=weight.device)
        self.used, self.layers = 0, {layer: (make(layer), make(layer)) for layer in model.layers}

    def of(self, layer):
        return self.layers[layer]


class Decoder(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, hidden, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, cache):
        """The logits after the last token."""
        positions = torch.arange(cache.used, cache.used + tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, positions, cache)
        cache.used += tokens.shape[1]
        return self.head(self.norm(x[:, -1]))


def build(layers, width, heads, kv_heads, hidden, vocabulary, dtype, device):
    return Decoder(layers, width, heads, kv_heads, hidden, vocabulary).to(device=device, dtype=dtype).eval()


def generate(model, prompt, forced):
    """The logits after the prompt and after each token of `forced`, which stands for what a sampler
    would have chosen: so the work does not depend on rounding."""
    batch, tokens = prompt.shape
    cache = Cache(model, batch, tokens + forced.shape[1])
    with region("prefill", "LLM"):
        logits = [model(prompt, cache)]
    with region("decode_all", "LLM"):
        for step in range(forced.shape[1]):
            with region("decode_step", "LLM"):
                logits.append(model(forced[:, step:step + 1], cache))
    return torch.stack(logits, dim=1).float()


def reference(model, prompt, forced):
    """Without a cache: every prefix from its beginning, in one pass each."""
    every = torch.cat((prompt, forced), dim=1)
    lengths = range(prompt.shape[1], every.shape[1] + 1)
    return torch.stack([model(every[:, :n], Cache(model, len(every), n)) for n in lengths], dim=1).float()
