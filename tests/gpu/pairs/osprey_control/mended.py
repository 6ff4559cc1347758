"""Model-based control: collect transitions from a learned-dynamics task into a ring buffer."""
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Config(NamedTuple):
    envs: int = 256
    state: int = 48
    action: int = 12
    capacity: int = 2_097_152
    hidden: int = 256
    batch: int = 2048
    lr: float = 1e-3
    dt: float = 0.05
    warmup: int = 8
    steps: int = 200

    @property
    def row(self):
        return 2 * self.state + self.action


class Ring(NamedTuple):
    rows: jax.Array
    head: jax.Array
    filled: jax.Array


def make_ring(cfg):
    return Ring(jnp.zeros((cfg.capacity, cfg.row), jnp.float32),
                jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


@partial(jax.jit, donate_argnums=0)
def insert(ring, block):
    """Write a block of new transitions at the head; the capacity is a multiple of the block."""
    n, capacity = block.shape[0], ring.rows.shape[0]
    rows = jax.lax.dynamic_update_slice(ring.rows, block, (ring.head, 0))
    return Ring(rows, (ring.head + n) % capacity, jnp.minimum(ring.filled + n, capacity))


def plant_matrices(key, cfg):
    a, b = jax.random.split(key)
    drift = jax.random.normal(a, (cfg.state, cfg.state)) / cfg.state ** 0.5
    return drift - drift.T - 0.3 * jnp.eye(cfg.state), jax.random.normal(b, (cfg.action, cfg.state)) * 0.3


def init_model(key, cfg):
    sizes = (cfg.state + cfg.action, cfg.hidden, cfg.hidden, cfg.state)
    model = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        model.append((jax.random.normal(sub, (fan_in, fan_out)) * fan_in ** -0.5, jnp.zeros(fan_out)))
    return model


def predict(model, x):
    for w, b in model[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = model[-1]
    return x @ w + b


@partial(jax.jit, static_argnames="cfg")
def act_and_move(state, model, plant, key, cfg):
    """Try a few random actions in the model, take the best, move the true plant."""
    drift, push = plant
    trial = jax.random.normal(key, (8, cfg.envs, cfg.action))
    wide = jnp.broadcast_to(state, (8, cfg.envs, cfg.state))
    guess = wide + predict(model, jnp.concatenate((wide, trial), axis=-1))
    best = jnp.argmin(jnp.sum(guess ** 2, axis=-1), axis=0)
    action = jnp.take_along_axis(trial, best[None, :, None], axis=0)[0]
    after = state + cfg.dt * (jnp.tanh(state) @ drift + action @ push)
    return after, jnp.concatenate((state, action, after - state), axis=-1)


@partial(jax.jit, static_argnames="cfg", donate_argnums=0)
def learn(model, ring, key, cfg):
    index = jax.random.randint(key, (cfg.batch,), 0, jnp.maximum(ring.filled, 1))
    rows = ring.rows[index]
    x, y = rows[:, :cfg.state + cfg.action], rows[:, cfg.state + cfg.action:]
    def loss_fn(m):
        return jnp.mean((predict(m, x) - y) ** 2)
    loss, grads = jax.value_and_grad(loss_fn)(model)
    return jax.tree.map(lambda p, g: p - cfg.lr * g, model, grads), loss


def run(count, state, model, ring, plant, keys, cfg):
    loss = None
    for i in range(count):
        state, block = act_and_move(state, model, plant, keys[2 * i], cfg=cfg)
        ring = insert(ring, block)
        model, loss = learn(model, ring, keys[2 * i + 1], cfg=cfg)
    return state, model, ring, loss


def main():
    cfg = Config()
    k_plant, k_model, k_state, k_run = jax.random.split(jax.random.key(3), 4)
    plant = plant_matrices(k_plant, cfg)
    model = init_model(k_model, cfg)
    ring = make_ring(cfg)
    state = jax.random.normal(k_state, (cfg.envs, cfg.state))
    keys = list(jax.random.split(k_run, 2 * (cfg.warmup + cfg.steps)))
    state, model, ring, loss = run(cfg.warmup, state, model, ring, plant, keys[:2 * cfg.warmup], cfg)
    jax.block_until_ready((state, model, ring))
    start = time.perf_counter()
    state, model, ring, loss = run(cfg.steps, state, model, ring, plant, keys[2 * cfg.warmup:], cfg)
    jax.block_until_ready((state, model, ring))
    elapsed = time.perf_counter() - start
    print(f"rows {int(ring.filled)} loss {float(loss):.6f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
