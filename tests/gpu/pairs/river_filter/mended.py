"""Two layers of a gated recurrent filter over long river records (inference)."""
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

T, B, D, H = 1024, 32, 1024, 4096
STEPS = 60


def recur(gate, drive):
    """h[t] = gate[t] * h[t-1] + drive[t], from h = 0, along the first axis."""
    def join(p, q):
        return p[0] * q[0], q[0] * p[1] + q[1]

    return jax.lax.associative_scan(join, (gate, drive))[1]


def layer(w, x):
    gate = jax.nn.sigmoid(x * w["a"] + w["b"])
    h = recur(gate, (1.0 - gate) * x)
    return x + jnp.tanh(h @ w["up"]) @ w["down"]


@jax.jit
def model(weights, x, shift):
    x = x + shift
    for w in weights:
        x = layer(w, x)
    return jnp.mean(x * x, axis=(0, 2))


def make_layer(key):
    k = jax.random.split(key, 3)
    return {
        "a": jax.random.normal(k[0], (D,)),
        "b": jnp.full((D,), 1.5),
        "up": jax.random.normal(k[1], (D, H)) / D**0.5,
        "down": jax.random.normal(k[2], (H, D)) / H**0.5,
    }


def main():
    keys = jax.random.split(jax.random.key(0), 3)
    weights = [make_layer(keys[0]), make_layer(keys[1])]
    x = jax.random.normal(keys[2], (T, B, D))
    box = {}

    def one(t):
        box["state"] = model(weights, x, 0.01 * (t % 3))

    for t in range(5):
        one(t)
    jax.block_until_ready(box["state"])
    t0 = time.perf_counter()
    for t in range(5, 5 + STEPS):
        one(t)
    jax.block_until_ready(box["state"])
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {float(box['state'].mean()):.3f}")
    print(f"step_ms {ms:.4f}")


main()
