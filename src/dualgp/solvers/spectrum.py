"""The two numbers of a matrix that step sizes depend on, estimated by a cheap probe."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._random import generator, subkey
from dualgp._types import Indices, RandomKey
from dualgp.operators import Operator

PROBE_POINTS = 2000
POWER_ITERATIONS = 20


class Spectrum(NamedTuple):
    """The largest eigenvalue and the largest diagonal entry of A (n x n), and the passes spent on them."""

    n: int
    largest: float
    diagonal: float
    passes: float


def estimate_spectrum(operator: Operator, key: RandomKey) -> Spectrum:
    """Power iteration on the block of a random subsample: lambda_1(K) / n hardly depends on the sample's size."""
    num = min(operator.n, PROBE_POINTS)
    index = generator(subkey(key, "rows")).choice(operator.n, num, replace=False)
    block, diagonal = _block_and_diagonal(operator, index)
    of_kernel = float(largest_eigenvalue(block, subkey(key, "power iteration"))) * operator.n / num
    largest = operator.noise.largest + of_kernel
    return Spectrum(operator.n, largest, float(diagonal), (num / operator.n) ** 2)


@eqx.filter_jit
def largest_eigenvalue(block: Float[Array, "m m"], key: RandomKey) -> Float[Array, ""]:
    """The largest eigenvalue of a symmetric matrix, by power iteration."""

    def unit(v: Float[Array, " m"]) -> Float[Array, " m"]:
        return v / jnp.linalg.norm(v)

    start = unit(jax.random.normal(key, block.shape[:1], block.dtype))
    v = jax.lax.fori_loop(0, POWER_ITERATIONS, lambda _, v: unit(block @ v), start)
    return v @ (block @ v)


@eqx.filter_jit
def _block_and_diagonal(operator: Operator, index: Indices) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
    return operator.noiseless.block(index), jnp.max(operator.diagonal())
