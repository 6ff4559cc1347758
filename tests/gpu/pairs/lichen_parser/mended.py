"""Tagger for ragged token sequences: gated mixing of nearby tokens, plain SGD."""
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Config(NamedTuple):
    vocab: int = 4000
    width: int = 256
    tags: int = 30
    layers: int = 2
    batch: int = 32
    max_len: int = 192
    multiple: int = 64
    lr: float = 0.05
    warmup: int = 6
    steps: int = 60


def init(key, cfg):
    keys = jax.random.split(key, 2 + cfg.layers)
    scale = cfg.width ** -0.5
    blocks = []
    for k in keys[2:]:
        a, b = jax.random.split(k)
        blocks.append({"in": scale * jax.random.normal(a, (cfg.width, 2 * cfg.width)),
                       "out": scale * jax.random.normal(b, (cfg.width, cfg.width))})
    return {"embed": 0.1 * jax.random.normal(keys[0], (cfg.vocab, cfg.width)),
            "blocks": blocks,
            "head": scale * jax.random.normal(keys[1], (cfg.width, cfg.tags))}


def look_back(x, reach):
    """Mean of each token and the few before it (zeros before the start)."""
    total = x
    for k in range(1, reach + 1):
        total = total + jnp.pad(x, ((0, 0), (k, 0), (0, 0)))[:, :x.shape[1]]
    return total / (reach + 1)


def forward(params, tokens):
    x = params["embed"][tokens]
    for block in params["blocks"]:
        gate, value = jnp.split(x @ block["in"], 2, axis=-1)
        mixed = look_back(jax.nn.sigmoid(gate) * value, reach=3)
        x = x + jnp.tanh(mixed) @ block["out"]
    return x @ params["head"]


def loss_fn(params, tokens, tags, valid):
    logp = jax.nn.log_softmax(forward(params, tokens))
    picked = jnp.take_along_axis(logp, tags[..., None], axis=-1)[..., 0]
    return -jnp.sum(picked * valid) / jnp.sum(valid)


@partial(jax.jit, static_argnames="cfg", donate_argnums=0)
def train_step(params, tokens, tags, valid, cfg):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, tags, valid)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    scale = cfg.lr * jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    return jax.tree.map(lambda p, g: p - scale * g, params, grads), loss


def round_up(n, multiple):
    return (n + multiple - 1) // multiple * multiple


class Corpus:
    """Hands out batches of sentences; the batches' longest sentences differ."""

    TOPS = (124, 181, 187, 124, 186, 118, 181, 187, 118, 190)

    def __init__(self, cfg, seed=0):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        self.served = 0

    def sentences(self):
        top = self.TOPS[(self.served // 6) % len(self.TOPS)]
        self.served += 1
        lengths = self.rng.integers(top // 2, top, self.cfg.batch)
        lengths[0] = top
        return [self.rng.integers(1, self.cfg.vocab, n) for n in lengths]

    def batch(self):
        group = self.sentences()
        longest = max(len(s) for s in group)
        width = round_up(longest, self.cfg.multiple)
        tokens = np.zeros((self.cfg.batch, width), np.int32)
        valid = np.zeros((self.cfg.batch, width), np.float32)
        for row, s in enumerate(group):
            tokens[row, :len(s)] = s
            valid[row, :len(s)] = 1.0
        tags = (tokens * 7 + np.roll(tokens, 1, axis=1)) % self.cfg.tags
        return tokens, tags.astype(np.int32), valid


def main():
    cfg = Config()
    corpus = Corpus(cfg)
    params = jax.jit(init, static_argnames="cfg")(jax.random.key(1), cfg=cfg)
    losses = []
    for _ in range(2 * cfg.warmup):
        params, loss = train_step(params, *corpus.batch(), cfg=cfg)
    jax.block_until_ready(params)
    start = time.perf_counter()
    for _ in range(cfg.steps):
        params, loss = train_step(params, *corpus.batch(), cfg=cfg)
        losses.append(loss)
    jax.block_until_ready(params)
    elapsed = time.perf_counter() - start
    print(f"loss first {float(losses[0]):.4f} last {float(losses[-1]):.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
