"""The nearest rows of points, and what they alone say about a point: u = A_NN^-1 k_N."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.spatial import cKDTree

from dualgp._arrays import compiled, full_precision, in_wide
from dualgp._checks import check_count
from dualgp._threads import one_blas_thread
from dualgp._types import AnyArray, Points
from dualgp.kernels import Kernel
from dualgp.operators import policy


class NearestRows:
    """The rows of x that are nearest to points in the kernel's coordinates; made once, its tree when it is first asked.

    A k-d tree where correlation falls with distance. Else, as for Tanimoto, the rows with the largest correlation
    |k(point, row)| / sqrt(k(row, row)), by looking at all of them: m n kernel entries.
    """

    def __init__(self, kernel: Kernel, x: AnyArray) -> None:
        self.kernel, self.x = kernel, x

    @cached_property
    def _tree(self) -> cKDTree:
        # Without balancing, equal rows are one leaf and not a recursion.
        return cKDTree(self._coordinates(self.x), balanced_tree=False, compact_nodes=False)

    @in_wide
    def _coordinates(self, points: AnyArray) -> Float[np.ndarray, "m c"]:
        return np.asarray(self.kernel.coordinates(np.asarray(points)), np.float64)

    def query(self, points: AnyArray, num: int) -> Int[np.ndarray, "m num"]:
        """The places of the `num` nearest rows of each point, the nearest first."""
        check_count(num, "num", 1)
        num = min(num, self.x.shape[0])
        if self.kernel.falls_with_distance:
            return self._tree.query(self._coordinates(points), np.arange(1, num + 1), workers=-1)[1].astype(np.int32)
        return self._look_at_all(points, num)

    @in_wide
    def _look_at_all(self, points: AnyArray, num: int) -> Int[np.ndarray, "m num"]:
        dtype = np.result_type(self.x.dtype, points.dtype)  # bytes stay bytes
        size, x = max(1, policy.SEARCH_ENTRIES // self.x.shape[0]), jnp.asarray(self.x)
        found = [np.empty((0, num), np.int32)]
        for start in range(0, len(points), size):
            block = np.asarray(points[start : start + size]).astype(dtype)
            padded = np.resize(block, (size, block.shape[1])) if len(block) < size else block
            found.append(np.asarray(_most_correlated(self.kernel, padded, x, num))[: len(block)])
        return np.concatenate(found)


@eqx.filter_jit
def _most_correlated(kernel: Kernel, points: Points, x: Points, num: int) -> Int[Array, "m num"]:
    """The rows x with the largest |k(point, x)| / sqrt(k(x, x))."""
    size = jnp.abs(kernel(points, x))
    return jax.lax.top_k(jax.lax.stop_gradient(size / jnp.sqrt(jnp.maximum(kernel.diagonal(x), 1e-30))), num)[1]


@in_wide
def neighbour_weights(
    kernel: Kernel, noise: Any, points: AnyArray, x: AnyArray, near: Int[np.ndarray, "m num"]
) -> tuple[Float[np.ndarray, "m num"], Float[np.ndarray, " m"]]:
    """u = A_NN^-1 k(N, point) and k(point, point) - k(point, N) u for each point and its rows N, in float64.

    A prediction by these rows alone is u @ y_N, and the second is its variance. m num^3 / 3 operations, in batches.
    """
    (m, num), points, x = near.shape, np.asarray(points), np.asarray(x)
    weights, variance = np.empty((m, num)), np.empty(m)
    size = max(1, min(policy.NEAR_ENTRIES // num**2, 1 << max(m - 1, 0).bit_length()))
    noise = jnp.asarray(noise, jnp.float64)
    with one_blas_thread(num):
        for start in range(0, m, size):
            some = slice(start, start + size)
            count = len(near[some])
            batch = np.resize(near[some], (size, num))  # of one shape, so that it is compiled once
            block = np.resize(points[some], (size, points.shape[1])).astype(np.float64)
            found = _neighbour_weights(kernel, noise, block, x[batch].astype(np.float64))
            weights[some], variance[some] = (np.asarray(array)[:count] for array in found)
    return weights, variance


@full_precision
def weigh_neighbours(
    kernel: Kernel, noise: AnyArray, point: Float[AnyArray, " d"], rows: Points
) -> tuple[Float[Array, " num"], Float[Array, ""]]:
    """`neighbour_weights` of one point, for use inside `jax.jit`.

    A little of the diagonal is added, as much as rounding takes away. Where A_NN is singular even so, the weights are
    zero: the neighbours say nothing.
    """
    matrix, across = kernel(rows, rows), kernel(rows, point[None])[:, 0]
    own = kernel.diagonal(point[None])[0]
    rounding = 4 * jnp.finfo(matrix.dtype).eps * jnp.trace(matrix)
    matrix = matrix + (jnp.asarray(noise, matrix.dtype) + rounding) * jnp.eye(len(across), dtype=matrix.dtype)
    weights = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrix, symmetrize_input=False), True), across)
    weights = jnp.where(jnp.all(jnp.isfinite(weights)), weights, 0.0)
    return weights, jnp.clip(own - across @ weights, 0.0, own)


@compiled
def _neighbour_weights(kernel: Kernel, noise: AnyArray, points: Points, rows: AnyArray) -> Any:
    return jax.vmap(lambda point, rows: weigh_neighbours(kernel, noise, point, rows))(points, rows)
