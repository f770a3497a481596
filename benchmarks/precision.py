"""K kept in half precision: what it costs in residual and what it saves in time.

    DUALGP_DATA=... python benchmarks/precision.py [--sets pol,elevators] [--n 8000]

"residual": ||(K_half - K) v|| / ||b|| at the exact solution v of the mean: about the true residual that a solver which
sees K_half ends with. "ms": a product of 512 gathered rows of the kept matrix with 65 columns, summed in float32.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from record import load_uci, medians, published_model, save


def product(matrix, index, v):
    return jax.lax.dot(matrix[index], v.astype(matrix.dtype), preferred_element_type=jnp.float32)


def measure(name: str, n: int) -> dict:
    data, model = load_uci(name), published_model(name)
    x, y = data.x[:n], data.y[:n]
    operator = dg.KernelOperator(model.kernel, x, model.noise, dtype=np.float64)
    weights = dg.solve(operator, y, dg.Cholesky()).weights
    K = operator.dense() - float(model.noise) * np.eye(n)
    rng = np.random.default_rng(0)
    index = jnp.asarray(rng.permutation(n)[:512], jnp.int32)
    v = jnp.asarray(rng.normal(size=(n, 65)), jnp.float32)
    line: dict = {"set": name, "n": n}
    ways = {}
    for dtype in ("float32", "float16", "bfloat16"):
        half = jnp.asarray(K, jnp.float32).astype(dtype)
        error = (np.asarray(half.astype(jnp.float32), np.float64) - K) @ weights
        line[f"residual, {dtype}"] = float(f"{np.linalg.norm(error) / np.linalg.norm(y):.2g}")
        ways[dtype] = lambda half=half: jax.jit(product)(half, index, v)
    line["ms"] = {name: round(1e3 * seconds, 2) for name, seconds in medians(ways).items()}
    return line


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default="pol,elevators")
    arguments.add_argument("--n", type=int, default=8000)
    options = arguments.parse_args()
    for name in options.sets.split(","):
        save("precision", measure(name, options.n))


if __name__ == "__main__":
    main()
