"""Greedy decoding with a cache of keys and values per layer."""
from functools import partial
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

L, B, H, S, DH, V = 8, 16, 16, 2048, 64, 8192
D = H * DH
STEPS = 400


def attend(w, cache, x, pos):
    q, k, v = jnp.split((x @ w["qkv"]).reshape(B, 3 * H, 1, DH), 3, axis=1)
    keys = jax.lax.dynamic_update_slice(cache[0], k, (0, 0, pos, 0))
    values = jax.lax.dynamic_update_slice(cache[1], v, (0, 0, pos, 0))
    score = jnp.einsum("bhqd,bhsd->bhqs", q, keys) / DH**0.5
    score = jnp.where(jnp.arange(S) <= pos, score, -1e4)
    out = jnp.einsum("bhqs,bhsd->bhqd", jax.nn.softmax(score), values)
    return (keys, values), x + out.reshape(B, D) @ w["out"]


@partial(jax.jit, donate_argnums=2)
def decode(weights, table, caches, token, pos):
    x = table[token]
    fresh = []
    for w, cache in zip(weights, caches):
        cache, x = attend(w, cache, x, pos)
        x = x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-3)
        fresh.append(cache)
    logits = x @ table.T
    return fresh, jnp.argmax(logits, axis=-1), logits


def main():
    half = jnp.bfloat16
    keys = jax.random.split(jax.random.key(2), 2 * L + 1)
    weights = [
        {
            "qkv": (jax.random.normal(keys[2 * i], (D, 3 * D)) / D**0.5).astype(half),
            "out": (jax.random.normal(keys[2 * i + 1], (D, D)) / D**0.5).astype(half),
        }
        for i in range(L)
    ]
    table = jax.random.normal(keys[-1], (V, D)).astype(half)
    box = {
        "caches": [(jnp.zeros((B, H, S, DH), half), jnp.zeros((B, H, S, DH), half)) for _ in range(L)],
        "token": jnp.arange(B),
    }

    def one(t):
        out = decode(weights, table, box["caches"], box["token"], np.int32(t))
        box["caches"], box["token"], box["state"] = out

    for t in range(5):
        one(t)
    jax.block_until_ready(box["state"])
    t0 = time.perf_counter()
    for t in range(5, 5 + STEPS):
        one(t)
    jax.block_until_ready(box["state"])
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    norm = float(jnp.mean(jnp.abs(box["state"].astype(jnp.float32))))
    print(f"check {norm:.1f}")
    print(f"step_ms {ms:.4f}")


main()
