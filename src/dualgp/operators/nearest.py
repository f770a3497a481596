"""The nearest rows of points, and the weights of predictions from these rows alone: u = A_NN^-1 k_N."""

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
from dualgp.operators.layout import Layout, Local
from dualgp.operators.noise import Noise
from dualgp.operators.small import map_in_threads, solve_each


class NearestRows:
    """The rows of x that are nearest to points in the kernel's coordinates; the tree is built at the first query.

    A k-d tree finds them if correlation falls with distance. Otherwise, as for Tanimoto, all rows are compared by their
    correlation |k(point, row)| / sqrt(k(row, row)): m n kernel entries. Each of many processes searches its own rows,
    and the best of all are taken.
    """

    def __init__(self, kernel: Kernel, x: AnyArray, layout: Layout | None = None) -> None:
        self.kernel, self.x, self.layout = kernel, x, layout or Local(x.shape[0])

    @cached_property
    def _own(self) -> AnyArray:
        return self.layout.read_own(self.x)

    @cached_property
    def _tree(self) -> cKDTree:
        # An unbalanced tree keeps equal rows in one leaf, without recursion.
        return cKDTree(self._coordinates(self._own), balanced_tree=False, compact_nodes=False)

    @in_wide
    def _coordinates(self, points: AnyArray) -> Float[np.ndarray, "m c"]:
        return np.asarray(self.kernel.coordinates(np.asarray(points)), np.float64)

    def query(self, points: AnyArray, num: int) -> Int[np.ndarray, "m num"]:
        """The indices of the `num` nearest rows of each point, the nearest first."""
        check_count(num, "num", 1)
        search = self._search_tree if self.kernel.falls_with_distance else self._compare_all
        distance, place = search(np.asarray(points), min(num, len(self._own)))
        if self.layout.is_alone:
            return place.astype(np.int32)
        place = place + self.layout.own.start
        if (missing := min(num, self.layout.n) - place.shape[1]) > 0:  # this process has too few rows
            distance = np.pad(distance, ((0, 0), (0, missing)), constant_values=np.inf)
            place = np.pad(place, ((0, 0), (0, missing)))
        distance, place = (np.concatenate(self.layout.stack(array), axis=1) for array in (distance, place))
        order = np.argsort(distance, axis=1, kind="stable")[:, : min(num, self.layout.n)]
        return np.take_along_axis(place, order, axis=1).astype(np.int32)

    def query_others(self, rows: Int[np.ndarray, " m"], x: AnyArray, num: int) -> Int[np.ndarray, "m others"]:
        """The nearest other rows of each of these rows, whose inputs are x."""
        found = self.query(x, min(num + 1, self.layout.n))
        is_other = found != rows[:, None]
        # A row may be missing among its neighbours if many rows are equal to it: then the farthest is dropped.
        is_other[is_other.all(axis=1), -1] = False
        return found[is_other].reshape(len(rows), -1)

    def read(self, near: Int[np.ndarray, "m num"], columns: AnyArray | None = None) -> np.ndarray:
        """These rows of x, or of columns with the placement of x: (m, num, d)."""
        array = self.x if columns is None else columns
        return self.layout.read_rows(array, near.ravel()).reshape(*near.shape, array.shape[1])

    def weigh(
        self, weights: Float[np.ndarray, "m num"], near: Int[np.ndarray, "m num"], columns: AnyArray
    ) -> Float[np.ndarray, "m s"]:
        """The sum of weights times columns over the rows of each point, in float64."""
        return np.matmul(weights[:, None], self.read(near, columns).astype(np.float64))[:, 0]

    def _search_tree(self, points: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
        return self._tree.query(self._coordinates(points), np.arange(1, num + 1), workers=-1)

    @in_wide
    def _compare_all(self, points: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
        dtype = np.result_type(self._own.dtype, points.dtype)  # bytes stay bytes
        size = max(1, min(policy.SEARCH_ENTRIES // max(len(self._own), 1), 1 << max(len(points) - 1, 0).bit_length()))
        x = jnp.asarray(self._own)
        found = [(np.empty((0, num)), np.empty((0, num), np.int32))]
        for start in range(0, len(points), size):
            block = points[start : start + size].astype(dtype)
            padded = np.resize(block, (size, block.shape[1])) if len(block) < size else block
            correlation, places = map(np.asarray, _most_correlated(self.kernel, padded, x, num))
            found.append((-correlation[: len(block)], places[: len(block)]))
        distances, rows = zip(*found, strict=True)
        return np.concatenate(distances), np.concatenate(rows)


def nearest_inside_jit(kernel: Kernel, points: Points, x: Points, num: int) -> Int[Array, "m num"]:
    """The nearest rows inside `jax.jit`, by comparing all of them; the choice has no derivative."""
    if not kernel.falls_with_distance:
        return _most_correlated(kernel, points, x, num)[1]
    coordinates, others = (jax.lax.stop_gradient(kernel.coordinates(rows)) for rows in (points, x))
    return jax.lax.map(lambda point: jax.lax.top_k(-jnp.sum((others - point) ** 2, axis=1), num)[1], coordinates)


@eqx.filter_jit
def _most_correlated(
    kernel: Kernel, points: Points, x: Points, num: int
) -> tuple[Float[Array, "m num"], Int[Array, "m num"]]:
    """The rows x with the largest |k(point, x)| / sqrt(k(x, x)), and these values."""
    size = jnp.abs(kernel(points, x))
    best, place = jax.lax.top_k(jax.lax.stop_gradient(size / jnp.sqrt(jnp.maximum(kernel.diagonal(x), 1e-30))), num)
    return best, place


@in_wide
def neighbour_weights(
    search: NearestRows, noise: Noise, points: AnyArray, near: Int[np.ndarray, "m num"], term: Kernel | None = None
) -> tuple[Float[np.ndarray, "m num"], Float[np.ndarray, " m"]]:
    """u = A_NN^-1 k(N, point) and k(point, point) - k(point, N) u for each point and its rows N, in float64.

    A prediction from these rows alone is u @ y_N, and the second value is its variance. `term`: a term of the kernel to
    predict; k(N, point) and k(point, point) are then those of the term. m num^3 / 3 operations.
    """
    (m, num), points = near.shape, np.asarray(points)
    weights, variance = np.empty((m, num)), np.empty(m)
    size = max(1, min(policy.NEAR_ENTRIES // num**2, 1 << max(m - 1, 0).bit_length()))
    places = [slice(start, min(start + size, m)) for start in range(0, m, size)]

    def equations(some: slice) -> tuple[np.ndarray, ...]:
        batch = np.resize(near[some], (size, num))  # one shape, so that one program is compiled
        block = np.resize(points[some], (size, points.shape[1])).astype(np.float64)
        rows, variances = search.read(batch).astype(np.float64), noise.diagonal(batch, np.float64)
        made = _equations(search.kernel, variances, block, rows, term)
        return tuple(np.asarray(array)[: some.stop - some.start] for array in made)

    with one_blas_thread(num):
        solved = (map if len(places) < 2 else map_in_threads)(_solve_equations, map(equations, places))
        for some, found in zip(places, solved, strict=True):
            weights[some], variance[some] = found
    return weights, variance


@full_precision
def weigh_neighbours(
    kernel: Kernel,
    noise: Float[AnyArray, " num"],
    point: Float[AnyArray, " d"],
    rows: Points,
    term: Kernel | None = None,
) -> tuple[Float[Array, " num"], Float[Array, ""]]:
    """`neighbour_weights` of one point, for use inside `jax.jit`."""
    matrix, across, own = _equations_of(kernel, noise, point, rows, term)
    weights = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(matrix, symmetrize_input=False), True), across)
    weights = jnp.where(jnp.all(jnp.isfinite(weights)), weights, 0.0)
    return weights, jnp.clip(own - across @ weights, 0.0, own)


def _solve_equations(equations: tuple[np.ndarray, ...]) -> tuple[Float[np.ndarray, "m num"], Float[np.ndarray, " m"]]:
    """Weights and variances from the equations of each point."""
    matrices, across, own = equations
    weights = solve_each(matrices, across)
    weights[~np.isfinite(weights).all(axis=1)] = 0.0
    return weights, np.clip(own - np.einsum("ij,ij->i", across, weights), 0.0, own)


def _equations_of(
    kernel: Kernel, noise: Float[AnyArray, " num"], point: Float[AnyArray, " d"], rows: Points, term: Kernel | None
) -> tuple[Float[Array, "num num"], Float[Array, " num"], Float[Array, ""]]:
    """A_NN, k(N, point) and k(point, point) of one point.

    The diagonal is increased by its rounding error. If A_NN is singular nevertheless, the weights are zero.
    """
    asked = kernel if term is None else term
    matrix = kernel(rows, rows)
    rounding = 4 * jnp.finfo(matrix.dtype).eps * jnp.trace(matrix)
    matrix = matrix + jnp.diag(jnp.asarray(noise, matrix.dtype) + rounding)
    return matrix, asked(rows, point[None])[:, 0], asked.diagonal(point[None])[0]


@compiled
def _equations(kernel: Kernel, noise: AnyArray, points: Points, rows: AnyArray, term: Kernel | None) -> Any:
    return jax.vmap(lambda noise, point, rows: _equations_of(kernel, noise, point, rows, term))(noise, points, rows)
