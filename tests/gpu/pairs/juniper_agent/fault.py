"""Off-policy value learning from a large table of logged transitions, all on the device."""
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Config(NamedTuple):
    rows: int = 3_000_000
    obs: int = 24
    actions: int = 12
    hidden: int = 256
    batch: int = 4096
    gamma: float = 0.98
    tau: float = 0.01
    lr: float = 3e-4
    warmup: int = 5
    steps: int = 150


class Table(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    done: jax.Array


class State(NamedTuple):
    params: list
    target: list
    m: list
    v: list
    count: jax.Array
    key: jax.Array


def init_net(key, sizes):
    layers = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        w = jax.random.normal(sub, (fan_in, fan_out)) * (2.0 / fan_in) ** 0.5
        layers.append({"w": w, "b": jnp.zeros(fan_out)})
    return layers


def q_values(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def make_table(key, cfg):
    k = jax.random.split(key, 5)
    obs = jax.random.normal(k[0], (cfg.rows, cfg.obs))
    action = jax.random.randint(k[1], (cfg.rows,), 0, cfg.actions)
    drift = 0.1 * jax.random.normal(k[2], (cfg.rows, cfg.obs))
    reward = jnp.tanh(obs[:, 0] * (action - cfg.actions / 2)) + 0.1 * jax.random.normal(k[3], (cfg.rows,))
    done = jax.random.uniform(k[4], (cfg.rows,)) < 0.02
    return Table(obs, action, reward, obs + drift, done)


def sample(key, table, cfg):
    index = jax.random.choice(key, cfg.rows, (cfg.batch,), replace=False)
    return Table(*(column[index] for column in table))


def td_loss(params, target, batch, cfg):
    best = jnp.argmax(q_values(params, batch.next_obs), axis=-1)
    future = jnp.take_along_axis(q_values(target, batch.next_obs), best[:, None], axis=-1)[:, 0]
    goal = batch.reward + cfg.gamma * jnp.where(batch.done, 0.0, future)
    chosen = jnp.take_along_axis(q_values(params, batch.obs), batch.action[:, None], axis=-1)[:, 0]
    err = chosen - jax.lax.stop_gradient(goal)
    return jnp.mean(jnp.where(jnp.abs(err) < 1.0, 0.5 * err ** 2, jnp.abs(err) - 0.5))


def adam(params, grads, m, v, count, lr):
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    scale = lr * jnp.sqrt(1 - 0.999 ** count) / (1 - 0.9 ** count)
    params = jax.tree.map(lambda p, a, b: p - scale * a / (jnp.sqrt(b) + 1e-8), params, m, v)
    return params, m, v


@partial(jax.jit, static_argnames="cfg", donate_argnums=0)
def update(state, table, cfg):
    key, sub = jax.random.split(state.key)
    batch = sample(sub, table, cfg)
    loss, grads = jax.value_and_grad(td_loss)(state.params, state.target, batch, cfg)
    count = state.count + 1
    params, m, v = adam(state.params, grads, state.m, state.v, count, cfg.lr)
    target = jax.tree.map(lambda t, p: (1 - cfg.tau) * t + cfg.tau * p, state.target, params)
    return State(params, target, m, v, count, key), loss


def main():
    cfg = Config()
    k_table, k_net, k_run = jax.random.split(jax.random.key(0), 3)
    table = jax.jit(make_table, static_argnames="cfg")(k_table, cfg=cfg)
    params = init_net(k_net, (cfg.obs, cfg.hidden, cfg.hidden, cfg.actions))
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    target = jax.tree.map(lambda p: p + 0.0, params)
    state = State(params, target, zeros(), zeros(), jnp.zeros((), jnp.float32), k_run)
    losses = []
    for _ in range(cfg.warmup):
        state, loss = update(state, table, cfg=cfg)
    jax.block_until_ready(state)
    start = time.perf_counter()
    for _ in range(cfg.steps):
        state, loss = update(state, table, cfg=cfg)
        losses.append(loss)
    jax.block_until_ready((state, losses))
    elapsed = time.perf_counter() - start
    print(f"loss first {float(losses[0]):.4f} last {float(losses[-1]):.4f}")
    print(f"step_ms={1000 * elapsed / cfg.steps:.4f}")


if __name__ == "__main__":
    main()
