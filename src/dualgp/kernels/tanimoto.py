"""The Tanimoto kernel of molecular fingerprints (Ralaivola et al. 2005)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_parameter, is_traced
from dualgp._checks import check_counts, check_positive
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.base import Kernel
from dualgp.kernels.counts import LARGEST_COUNT, LARGEST_SUM, as_counts, minima_of_pairs, row_sums, sums_of_minima
from dualgp.kernels.features import Features
from dualgp.kernels.hashes import draw_hashes

NUM_COORDINATES = 64
ROWS_AT_ONCE = 4096


class Tanimoto(Kernel):
    """variance * sum_c min(x_c, x'_c) / sum_c max(x_c, x'_c), for counts or bits: whole numbers from 0 to 255.

    For two inputs without counts it is the variance. Inputs are kept as bytes where arithmetic is in float32.
    There is no derivative in the inputs.
    """

    variance: Parameter = eqx.field(default=1.0, converter=as_parameter)

    def __check_init__(self) -> None:
        check_positive(self.variance, "Tanimoto's variance")
        if self.variance.ndim != 0:
            raise ValueError(f"Tanimoto's variance must be a number, got shape {self.variance.shape}.")

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        x1, x2 = jnp.asarray(x1), jnp.asarray(x2)
        counts1, counts2 = as_counts(x1), as_counts(x2)
        dtype = jnp.result_type(x1.dtype, x2.dtype, jnp.float32)
        return self._of_sums(minima_of_pairs(counts1, counts2), row_sums(counts1), row_sums(counts2), dtype)

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        x1 = jnp.asarray(x1)
        counts = as_counts(x1)
        shared, sums = sums_of_minima(counts), row_sums(counts)

        def block(tile: Points) -> Float[Array, "n1 tile"]:
            tile = jnp.asarray(tile)
            other = as_counts(tile)
            dtype = jnp.result_type(x1.dtype, tile.dtype, jnp.float32)
            return self._of_sums(shared(other), sums, row_sums(other), dtype)

        return block

    def _of_sums(self, minima: Array, sums1: Array, sums2: Array, dtype: Any) -> Float[Array, "n1 n2"]:
        maxima = sums1[:, None] + sums2 - minima  # max(a, b) = a + b - min(a, b)
        ratio = minima.astype(dtype) / jnp.maximum(maxima, 1).astype(dtype)
        return jnp.asarray(self.variance, dtype) * jnp.where(maxima > 0, ratio, jnp.ones((), dtype))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return jnp.full(x.shape[:1], jnp.asarray(self.variance, jnp.result_type(x.dtype, jnp.float32)))

    def largest_variance(self) -> float:
        return float(self.variance)

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        return draw_hashes(key, max(1, num_features), d, self.variance)

    def coordinates(self, x: Points) -> Float[Array, "n c"]:
        """Random projections of the square roots of counts divided by their sum (Hellinger's distance)."""
        d = x.shape[1]
        num = min(d, NUM_COORDINATES)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (d, num)) / np.sqrt(num)
        projection = jnp.asarray(signs if d > num else np.eye(d), jnp.float32)
        return _projected(jnp.asarray(x), projection).astype(jnp.result_type(x.dtype, jnp.float32))

    def points(self, x: Any, name: str = "x", d: int | None = None) -> AnyArray:
        return check_counts(x, name, d, LARGEST_COUNT, LARGEST_SUM)

    def stored(self, x: AnyArray, dtype: Any) -> Array:
        return jnp.asarray(x, jnp.uint8 if jnp.dtype(dtype) == jnp.float32 else dtype)

    def __repr__(self) -> str:
        return "Tanimoto(traced)" if is_traced(self.variance) else f"Tanimoto(variance={float(self.variance):.4g})"


@jax.jit
def _projected(x: Points, projection: Float[Array, "d c"]) -> Float[Array, "n c"]:
    """x @ projection, in blocks of rows: all counts as floats would take four times the memory of the data."""

    def project(row: Array) -> Array:
        counts = row.astype(jnp.float32)
        return jnp.sqrt(counts / jnp.maximum(jnp.sum(counts), 1.0)) @ projection

    return jax.lax.map(project, x, batch_size=ROWS_AT_ONCE)
