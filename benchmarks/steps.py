"""One step of stochastic dual descent, n = 13,500, d = 26, B = 512: ours, streamed and stored, against a plain one.

    python benchmarks/steps.py

The plain step computes distances by broadcasting, draws its batch from a fresh permutation of n, and is dispatched from
Python once a step. Ours run in the solver's own loop, 50 steps a chunk.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from dualgp._arrays import wide
from dualgp.solvers.iterate import advance
from record import medians, save

N, D, BATCH, STEPS = 13_500, 26, 512, 50
NOISE, STEP_SIZE, MOMENTUM = 0.1, 1.0, 0.9


@jax.jit
def plain_step(x, b, alpha, velocity, key):
    index = jax.random.permutation(key, N)[:BATCH]
    difference = (x[index][:, None, :] - x[None, :, :]) / 1.5
    r = math.sqrt(3.0) * jnp.sqrt(jnp.sum(difference**2, axis=2))
    ahead = alpha + MOMENTUM * velocity
    gradient = ((1.0 + r) * jnp.exp(-r)) @ ahead + NOISE * ahead[index] - b[index]
    velocity = (MOMENTUM * velocity).at[index].add(-STEP_SIZE / BATCH * gradient)
    return alpha + velocity, velocity


def measure(columns: int) -> dict:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(N, D)), jnp.float32)
    b = jnp.asarray(rng.normal(size=(N, columns)), jnp.float32)
    solver = dg.SDD(step_size=STEP_SIZE, batch_size=BATCH, num_steps=10_000, momentum=MOMENTUM, tol=0.0)
    key = jax.random.key(0)

    def ours(memory: int | None):
        operator = dg.KernelOperator(dg.Matern32(1.5), x, NOISE, memory=memory)
        prepared, _ = solver.prepare(operator, b, key)
        state = prepared.init(operator, b, jnp.zeros_like(b))
        return lambda: advance(prepared, operator, b, state, key, 0, STEPS)

    with wide():
        seconds = medians(
            {
                "plain": lambda: plain_step(x, b, jnp.zeros_like(b), jnp.zeros_like(b), key),
                "streamed": ours(0),
                "stored": ours(None),
            }
        )
    plain, streamed, stored = seconds["plain"], seconds["streamed"] / STEPS, seconds["stored"] / STEPS
    return {
        "columns": columns,
        "ms": {"plain": round(1e3 * plain, 1), "streamed": round(1e3 * streamed, 2), "stored": round(1e3 * stored, 2)},
        "plain / streamed": round(plain / streamed, 1),
        "plain / stored": round(plain / stored, 1),
    }


if __name__ == "__main__":
    for columns in (1, 9, 65):
        save("steps", measure(columns))
