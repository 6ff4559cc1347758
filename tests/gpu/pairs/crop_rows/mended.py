"""Trains a small network on a table of field records held on the GPU."""
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

ROWS, B, D, H = 200_000, 8192, 128, 2048
FIELDS = ["rain", "heat", "soil", "seed", "wind", "light", "slope", "depth"]
STEPS = 400


def forward(params, batch):
    x = sum(jnp.tanh(batch[f]) * params["scale"][i] for i, f in enumerate(FIELDS))
    for w in params["hidden"]:
        x = jax.nn.relu(x @ w)
    return (x @ params["out"])[:, 0]


def loss_of(params, batch):
    return jnp.mean((forward(params, batch) - batch["crop"]) ** 2)


def update(params, batch):
    loss, grad = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grad), loss


def pick(data, rows):
    return {name: column[rows] for name, column in data.items()}


@jax.jit
def advance(params, data, rows):
    return update(params, pick(data, rows))


def main():
    k = jax.random.split(jax.random.key(4), len(FIELDS) + 5)
    data = {f: jax.random.normal(k[i], (ROWS, D)) for i, f in enumerate(FIELDS)}
    data["crop"] = jax.random.normal(k[-5], (ROWS,))
    params = {
        "scale": jnp.full((len(FIELDS),), 0.3),
        "hidden": [
            jax.random.normal(k[-4], (D, H)) * (2 / D) ** 0.5,
            jax.random.normal(k[-3], (H, H)) * (2 / H) ** 0.5,
            jax.random.normal(k[-2], (H, H)) * (2 / H) ** 0.5,
        ],
        "out": jax.random.normal(k[-1], (H, 1)) * 0.3 / H**0.5,
    }
    order = np.random.default_rng(0).permutation(ROWS).astype(np.int32)
    box = {}

    def one(t):
        nonlocal params
        lo = t * B % (ROWS - B)
        params, box["state"] = advance(params, data, order[lo : lo + B])

    for t in range(5):
        one(t)
    jax.block_until_ready(box["state"])
    t0 = time.perf_counter()
    for t in range(5, 5 + STEPS):
        one(t)
    jax.block_until_ready(box["state"])
    ms = (time.perf_counter() - t0) * 1e3 / STEPS
    print(f"check {float(box['state']):.2f}")
    print(f"step_ms {ms:.4f}")


main()
