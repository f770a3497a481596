"""The near field: one more block step for the nearest rows N of the query.

    k(x, N) A_NN^-1 r_N  =  u @ r_N

With the residual r = 0 it is zero, and the prediction that of the exact GP. Without a far field, r = targets, it is the
GP of the nearest rows. In between it is never worse than these: exact variance <= variance <= k(x, x) - k(x, N) u.

To leave a row i out, its weight w_i is removed from the far field, so that the residual of the others becomes
r_N + K_Ni w_i, and the row is removed from the near field. The error of its prediction is then

    (r_i - u @ r_N)  +  w_i (K_ii - K_iN u + noise)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import full_precision, is_traced
from dualgp._types import AnyArray, Columns, Points
from dualgp.kernels import Kernel
from dualgp.operators import policy
from dualgp.operators.nearest import NearestRows, nearest_inside_jit, neighbour_weights, weigh_neighbours
from dualgp.operators.noise import Noise
from dualgp.operators.variance import combine_variances


class NearValues(NamedTuple):
    """Values at m points: u @ r_N, u @ targets_N, and the variance of a prediction from the neighbours alone."""

    correction: Float[AnyArray, "m s"]
    alone: Float[AnyArray, "m s"]
    variance: Float[AnyArray, " m"]


class NearField(eqx.Module):
    """Corrections from the `num` nearest of all rows. The value at a point depends on that point alone.

    Outside `jax.jit` neighbours are found by a tree, and their weights are computed in float64. Inside, all rows are
    compared, in the caller's precision; the choice of neighbours has no derivative. `residuals` is None without
    a far field. `term`: the term of the kernel whose near field it is, if not of the whole kernel.
    """

    noise: Noise
    x: Points
    residuals: Columns | None
    targets: Columns
    num: int = eqx.field(static=True)
    search: NearestRows = eqx.field(static=True)
    term: Kernel | None = None

    def __call__(self, points: AnyArray) -> NearValues:
        return self._inside_jit(points) if is_traced(self, points) else self._on_the_host(points)

    def _on_the_host(self, points: AnyArray) -> NearValues:
        near = self.search.query(points, self.num)
        weights, variance = neighbour_weights(self.search, self.noise, points, near, self.term)
        alone = self.search.weigh(weights, near, self.targets)
        both = alone if self.residuals is None else self.search.weigh(weights, near, self.residuals)
        return NearValues(both, alone, variance)

    @full_precision
    def _inside_jit(self, points: Points) -> NearValues:
        n, kernel = self.search.layout.n, self.search.kernel
        x = jnp.asarray(self.x)[:n]  # without the padding of sharded rows
        x = x if x.dtype == jnp.uint8 else x.astype(points.dtype)
        residuals = self.targets if self.residuals is None else self.residuals
        columns = [jnp.asarray(array, points.dtype) for array in (residuals, self.targets)]
        near = nearest_inside_jit(kernel, points, x, min(self.num, n))

        def values(query: tuple[Float[Array, " d"], Array]) -> NearValues:
            point, near = query
            noise = self.noise.diagonal(near, points.dtype)
            weights, variance = weigh_neighbours(kernel, noise, point, x[near].astype(points.dtype), self.term)
            correction, alone = (weights @ array[near] for array in columns)
            return NearValues(correction, alone, variance)

        return jax.lax.map(values, (points, near), batch_size=self._batch)

    @full_precision
    def correct_each(self, points: Float[Array, "s q d"]) -> Float[Array, "s q"]:
        """The correction of each function at points of its own, inside `jax.jit`."""
        (s, q, d), n, kernel = points.shape, self.search.layout.n, self.search.kernel
        x, columns = jnp.asarray(self.x, points.dtype)[:n], self.targets if self.residuals is None else self.residuals
        near = nearest_inside_jit(kernel, points.reshape(s * q, d), x, min(self.num, n))
        residuals = jnp.asarray(columns, points.dtype)[near, jnp.repeat(jnp.arange(s), q)[:, None]]

        def value(query: tuple[Float[Array, " d"], Array, Array]) -> Float[Array, ""]:
            point, near, residual = query
            noise = self.noise.diagonal(near, points.dtype)
            return weigh_neighbours(kernel, noise, point, x[near], self.term)[0] @ residual

        queries = (points.reshape(s * q, d), near, residuals)
        return jax.lax.map(value, queries, batch_size=self._batch).reshape(s, q)

    @property
    def _batch(self) -> int:
        """The number of points whose A_NN are in memory together."""
        return max(1, policy.NEAR_ENTRIES // self.num**2)

    def map_columns(self, function: Callable[[Columns], Columns]) -> NearField:
        """The near field with `function` applied to the columns of residuals and targets."""
        columns = (None if self.residuals is None else function(self.residuals), function(self.targets))
        is_none = lambda leaf: leaf is None  # noqa: E731
        return eqx.tree_at(lambda near: (near.residuals, near.targets), self, columns, is_leaf=is_none)


def leave_rows_out(
    near_field: NearField, weights: Columns, rows: Int[np.ndarray, " rows"], num_outputs: int = 1
) -> tuple[Float[np.ndarray, "rows k"], Float[np.ndarray, " rows"]]:
    """Errors of predictions of these rows from all others, and the variances of the errors, noise included."""
    search, size, k = near_field.search, policy.POINT_BLOCK, num_outputs
    errors, variances = np.empty((len(rows), k)), np.empty(len(rows))
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        x = search.read(some[:, None])[:, 0]
        near = search.query_others(some, x, near_field.num)
        u, variance = neighbour_weights(search, near_field.noise, x, near)
        variance = variance + np.asarray(near_field.noise.diagonal(some, np.float64))

        def leave_out(columns: Columns, some: Any = some, near: Any = near, u: Any = u) -> Float[np.ndarray, "rows s"]:
            return search.read(some[:, None], columns)[:, 0].astype(np.float64) - search.weigh(u, near, columns)

        alone = leave_out(near_field.targets)
        both = alone
        if near_field.residuals is not None:
            both = leave_out(near_field.residuals) + weights[some].astype(np.float64) * variance[:, None]
            variance = combine_variances(both[:, k:], alone[:, k:], variance)
        errors[start : start + size], variances[start : start + size] = both[:, :k], variance
    return errors, variances
