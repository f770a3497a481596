"""How far weights are from solving the system, measured on rows that the solver did not choose."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import in_wide, is_here
from dualgp._random import generator
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator

FRESH_ROWS = 2048


class Residual(NamedTuple):
    """Relative residual of each column, the upper end of its 95 % interval, and the passes spent to know it."""

    estimate: np.ndarray
    upper: np.ndarray
    passes: float


@in_wide
def column_norms(b: Columns) -> np.ndarray:
    """||b|| for each column; 1 for a column of zeros, whose residual is then absolute."""
    if is_here(b):
        norms = np.sqrt(np.einsum("ij,ij->j", np.asarray(b), np.asarray(b), dtype=np.float64))
    else:
        norms = np.asarray(_norms(b))
    return np.where(norms > 0, norms, 1.0)


@eqx.filter_jit
def _norms(b: Columns) -> Float[Array, " s"]:
    return jnp.linalg.norm(b.astype(jnp.float64), axis=0)


def fresh_residual(operator: Operator, b: Columns, weights: Columns, key: RandomKey | None) -> Residual:
    """||b - A @ weights|| / ||b|| from FRESH_ROWS random rows, or exactly where there are no more rows than that.

    The mean of n r_i^2 over the rows is unbiased for ||r||^2; the interval comes from its standard error.
    """
    n = operator.n
    num = min(n, FRESH_ROWS)
    index = np.arange(n) if num == n else generator(key).choice(n, num, replace=False)
    squares = operator.residual_on_host(index.astype(np.int32), weights, b).astype(np.float64) ** 2
    mean = squares.mean(axis=0)
    error = squares.std(axis=0) * np.sqrt((1.0 - num / n) / num)
    norms = column_norms(b)
    return Residual(np.sqrt(n * mean) / norms, np.sqrt(n * (mean + 2.0 * error)) / norms, num / n)
