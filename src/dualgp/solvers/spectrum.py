"""The two numbers that step sizes depend on, from a cheap probe of the operator."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._types import RandomKey
from dualgp.operators import Operator

PROBE_POINTS = 2000
POWER_ITERATIONS = 20


class Spectrum(NamedTuple):
    """The largest eigenvalue and the largest diagonal entry of A (n x n), and the passes spent to know them."""

    n: int
    largest: float
    diagonal: float
    passes: float


def estimate_spectrum(operator: Operator, key: RandomKey) -> Spectrum:
    """Power iteration on the block of a random subsample: lambda_1(K) / n hardly depends on the sample's size."""
    choice_key, start_key = jax.random.split(key)
    num = min(operator.n, PROBE_POINTS)
    index = jax.random.choice(choice_key, operator.n, (num,), replace=False)
    start = jax.random.normal(start_key, (num,), operator.dtype)
    block_largest, diagonal = _power_iteration(operator, index, start)
    noise = float(operator.noise)
    largest = noise + (float(block_largest) - noise) * operator.n / num
    return Spectrum(operator.n, largest, float(diagonal), (num / operator.n) ** 2)


@eqx.filter_jit
def _power_iteration(
    operator: Operator, index: Array, start: Float[Array, " num"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    block = operator.block(index)
    v = jax.lax.fori_loop(0, POWER_ITERATIONS, lambda _, v: _unit(block @ v), _unit(start))
    return v @ (block @ v), jnp.max(operator.diagonal())


def _unit(v: Float[Array, " num"]) -> Float[Array, " num"]:
    return v / jnp.linalg.norm(v)
