"""Items vote for one of 16 camps; their scores drift with the camp totals."""
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

N, F, CAMPS = 1 << 22, 64, 16
STEPS = 300


def tally(score, camp):
    return jnp.zeros(CAMPS).at[camp].add(score)


@jax.jit
def step(traits, w1, w2, camp, mood):
    hidden = jnp.tanh(traits @ w1 + mood.mean())
    score = jax.nn.sigmoid(hidden @ w2)
    totals = tally(score, camp)
    return 0.9 * mood + 0.1 * totals / N


def main():
    k = jax.random.split(jax.random.key(3), 4)
    traits = jax.random.normal(k[0], (N, F))
    w1 = jax.random.normal(k[1], (F, F)) / F**0.5
    w2 = jax.random.normal(k[2], (F,)) / F**0.5
    camp = jax.random.randint(k[3], (N,), 0, CAMPS)
    box = {"state": jnp.zeros(CAMPS)}

    def one(t):
        box["state"] = step(traits, w1, w2, camp, box["state"])

    for t in range(5):
        one(t)
    jax.block_until_ready(box["state"])
    t0 = time.perf_counter()
    for t in range(5, 5 + STEPS):
        one(t)
    jax.block_until_ready(box["state"])
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {float(box['state'].sum()):.3f}")
    print(f"step_ms {ms:.4f}")


main()
