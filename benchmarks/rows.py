"""A row block k(x[I], x) @ v, 512 rows, Matern-3/2: ours against the obvious ways to write it, and against a floor.

    python benchmarks/rows.py [--n 15000,50000,200000] [--d 3,9,26,90] [--columns 1,65]

- ours: `operator.kernel_rows`, compiled as the steps of solvers are (`_arrays.compiled`).
- one expression: distances by a matrix product, the kernel and the product in one jitted line: a 512 x n temporary.
- broadcast: x[I, None] - x, as in the published code: 512 x n x d subtractions. Left out where it takes minutes.
- floor: the two matrix products alone plus sqrt and exp over as many entries, in tiles that stay in the cache, compiled
  like ours.
"""

import argparse
import math

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from dualgp._arrays import compiled
from record import medians, save

ROWS, TILE = 512, 1024
KERNEL = dg.Matern32(1.5)


def one_expression(x, index, v):
    a = x[index] / 1.5
    b = x / 1.5
    squared = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1) - 2.0 * a @ b.T
    r = math.sqrt(3.0) * jnp.sqrt(jnp.maximum(squared, 0.0))
    return ((1.0 + r) * jnp.exp(-r)) @ v


def broadcast(x, index, v):
    difference = (x[index][:, None, :] - x[None, :, :]) / 1.5
    r = math.sqrt(3.0) * jnp.sqrt(jnp.sum(difference**2, axis=2))
    return ((1.0 + r) * jnp.exp(-r)) @ v


def products_alone(x, index, v):
    a = x[index]

    def add(total, start):
        x_tile, v_tile = (jax.lax.dynamic_slice_in_dim(array, start, TILE) for array in (x, v))
        return total + (a @ x_tile.T) @ v_tile, None

    starts = jnp.arange(0, x.shape[0] - TILE + 1, TILE)
    return jax.lax.scan(add, jnp.zeros((ROWS, v.shape[1]), v.dtype), starts)[0]


def roots_and_exponentials_alone(num):
    tile = jnp.ones((ROWS, TILE), jnp.float32)
    return jax.lax.fori_loop(0, num, lambda _, t: jnp.exp(-jnp.sqrt(t)), tile)


def measure(n: int, d: int, columns: int) -> dict:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(n, d)), jnp.float32)
    v = jnp.asarray(rng.normal(size=(n, columns)), jnp.float32)
    index = jnp.asarray(rng.permutation(n)[:ROWS], jnp.int32)
    operator = dg.KernelOperator(KERNEL, x, 0.1, memory=0)
    ours = compiled(lambda operator, index, v: operator.kernel_rows(index, v))
    plain, pairs = jax.jit(one_expression), jax.jit(broadcast)
    products, elementwise = compiled(products_alone), compiled(roots_and_exponentials_alone)
    ways = {
        "ours": lambda: ours(operator, index, v),
        "one expression": lambda: plain(x, index, v),
        "products": lambda: products(x, index, v),
        "roots and exponentials": lambda: elementwise(jnp.int32(n // TILE)),
    }
    if n * d < 2_000_000:
        ways["broadcast"] = lambda: pairs(x, index, v)
    seconds = medians(ways)
    floor = seconds["products"] + seconds["roots and exponentials"]
    ratios = {
        f"{name} / ours": round(seconds[name] / seconds["ours"], 2)
        for name in ways
        if name in ("one expression", "broadcast")
    }
    milliseconds = {name: round(1e3 * value, 1) for name, value in seconds.items()}
    return {
        "n": n,
        "d": d,
        "columns": columns,
        "ms": milliseconds,
        "floor / ours": round(floor / seconds["ours"], 2),
        **ratios,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--n", default="15000,50000,200000")
    arguments.add_argument("--d", default="3,9,26,90")
    arguments.add_argument("--columns", default="1,65")
    options = arguments.parse_args()
    sizes, dimensions, columns = ([int(v) for v in text.split(",")] for text in (options.n, options.d, options.columns))
    for n in sizes:
        for d in dimensions:
            for m in columns:
                save("rows", measure(n, d, m))


if __name__ == "__main__":
    main()
