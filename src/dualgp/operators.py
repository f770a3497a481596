"""A = K + noise * I, never formed unless it fits: the only place that decides how much of K exists at once.

Solvers see an `Operator`: some rows of A times a matrix, a square block, the diagonal. A row product streams over the
data in column tiles, so it needs O(n (d + s)) memory and one tile of K, whatever n is.
"""

import math
import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import as_parameter, in_wide, is_traced, wide
from dualgp._checks import check_finite, check_positive
from dualgp._types import AnyArray, Columns, Indices, Points, RandomKey
from dualgp.kernels import Features, Kernel

# Entries of K that exist at once when streaming: 2 MB in float32, the caches of two cores. At n = 50,000, d = 9 and 512
# rows, tiles of 512 to 2,048 columns differ by a tenth; with 1,792 rows 512 columns take 138 ms and 2,048 take 181.
TILE_ENTRIES = 1 << 19
ROW_BLOCK = 512
COORDINATE_COLUMNS = 32  # of a matrix without inputs
KEEP_SHARE = 0.25  # of the machine's memory may go into keeping K


class Operator(eqx.Module):
    """A symmetric positive definite n x n matrix A = K + noise * I, known through its products."""

    noise: eqx.AbstractVar[AnyArray]

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of rows."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The precision of its products."""

    @abstractmethod
    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        """K[index] @ v: `len(index) * n` kernel entries."""

    @abstractmethod
    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        """K[:, index] @ u: the transpose of `kernel_rows`."""

    @abstractmethod
    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        """The entries K[rows][:, columns], in another precision on request."""

    @abstractmethod
    def kernel_diagonal(self) -> Float[Array, " n"]:
        """The diagonal of K."""

    @abstractmethod
    def features(self, key: RandomKey, num: int) -> Features:
        """Random features of the kernel, for methods that estimate K by them."""

    @abstractmethod
    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        """phi(x) for the n data: E[phi(x) @ phi(x).T] = K."""

    @abstractmethod
    def dense(self) -> Float[np.ndarray, "n n"]:
        """A itself in float64, in the host's memory: 8 n^2 bytes."""

    @abstractmethod
    def coordinates(self) -> Float[Array, "n c"]:
        """A place for every row such that rows in near places are strongly correlated. Only speed depends on it."""

    def rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        """A[index] @ v."""
        return self.kernel_rows(index, v) + self._noise * v[index]

    def block(self, index: Indices, dtype: Any = None) -> Float[Array, "batch batch"]:
        """A[index][:, index], for distinct indices."""
        block = self.kernel_block(index, index, dtype)
        return block + jnp.asarray(self.noise, block.dtype) * jnp.eye(index.shape[0], dtype=block.dtype)

    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal of A."""
        return self.kernel_diagonal() + self._noise

    def __matmul__(self, v: AnyArray) -> AnyArray:
        """A @ v, in blocks of rows: one pass over K. For use outside `jax.jit`, v may be a NumPy array or a vector."""
        if is_traced(self, v):
            return in_row_blocks(lambda rows: self.rows(rows, v), self.n, v.shape[1], v.dtype)
        with wide():
            columns = jnp.asarray(v, self.dtype).reshape(self.n, -1)
            return np.asarray(_product(self, columns)).reshape(np.shape(v))

    # Where columns live. An operator on many devices spreads them, and has its own way for each of these.

    def holds(self, array: Any) -> bool:
        """Whether `array` is in its place already."""
        return False

    def place(self, array: AnyArray) -> Columns:
        """(n, s) columns where the solver shall have them, in the operator's precision."""
        return jnp.asarray(array, self.dtype)

    def settled(self, state: Any) -> Any:
        """A solver's state with every array where the steps will leave it, so that they are compiled once."""
        return state

    def collect(self, columns: AnyArray) -> np.ndarray:
        """The (n, s) columns in the host's memory."""
        return np.asarray(columns)

    @property
    def is_alone(self) -> bool:
        """Whether this process can do without others: then it may stop when it likes."""
        return True

    def agreed(self, seconds: float) -> float:
        """A time by the clock that decisions are made by: of many processes, the first one's."""
        return seconds

    def problem(self, *columns: Columns) -> Any:
        """What tells this matrix and these columns from others, wherever they live: for fingerprints."""
        return self, *columns

    @property
    def _noise(self) -> Float[Array, ""]:
        return jnp.asarray(self.noise, self.dtype)


class DenseOperator(Operator):
    """A = K + noise * I for a matrix K that is in memory."""

    matrix: Float[AnyArray, "n n"]
    noise: AnyArray = eqx.field(default=0.0, converter=as_parameter)

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        return jnp.asarray(self.matrix)[index] @ v

    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        return jnp.asarray(self.matrix)[index].T @ u

    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        return jnp.asarray(self.matrix)[rows[:, None], columns].astype(dtype or self.dtype)

    def kernel_diagonal(self) -> Float[Array, " n"]:
        return jnp.diagonal(jnp.asarray(self.matrix))

    def features(self, key: RandomKey, num: int) -> Features:
        raise TypeError("A matrix has no random features. Use a KernelOperator, or a solver that needs none.")

    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        raise TypeError("A matrix has no random features. Use a KernelOperator, or a solver that needs none.")

    def coordinates(self) -> Float[Array, "n c"]:
        # Correlated rows have similar entries; a few columns of the matrix show it.
        columns = np.linspace(0, self.n - 1, min(self.n, COORDINATE_COLUMNS)).round().astype(np.int32)
        return jnp.asarray(self.matrix)[:, columns]

    def dense(self) -> Float[np.ndarray, "n n"]:
        matrix = np.array(self.matrix, np.float64)
        np.fill_diagonal(matrix, matrix.diagonal() + float(self.noise))
        return matrix


class KernelOperator(Operator):
    """A = k(x, x) + noise * I for a kernel and data.

    **Arguments:**

    - `kernel`, `x` of shape (n, d), `noise`: a variance, positive.
    - `memory`: bytes that may be spent on keeping K; by default a quarter of the machine's memory. K is kept if it fits
      (each product then reads it), otherwise its entries are computed whenever they are needed. 0 means always.
    - `dtype`: the precision; by default that of `x` (float32 or float64; wide integers become float64, bytes float32).
    """

    kernel: Kernel
    x: Points
    noise: AnyArray
    kept: DenseOperator | None

    @in_wide
    def __init__(self, kernel: Kernel, x: Any, noise: Any, *, memory: int | None = None, dtype: Any = None) -> None:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be a dualgp kernel such as Matern32(), got {type(kernel).__name__}.")
        dtype = np.result_type(getattr(x, "dtype", np.float64), np.float32) if dtype is None else dtype
        x = kernel.points(x)
        if x.shape[0] == 0:
            raise ValueError(f"x has no rows (shape {x.shape}). Pass at least one data point.")
        check_noise(noise)
        self.kernel = kernel
        self.x = kernel.stored(x, dtype)
        check_finite(self.x, "x in the operator's precision")
        _check_distances(kernel.coordinates(self.x))
        self.noise = as_parameter(noise)
        budget = KEEP_SHARE * machine_memory() if memory is None else memory
        fits = self.n**2 * self.dtype.itemsize <= budget
        self.kept = DenseOperator(_assemble(kernel, self.x, self.dtype), self.noise) if fits else None

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def dtype(self) -> np.dtype:
        return precision(self.x)

    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        if self.kept is not None:
            return self.kept.kernel_rows(index, v)
        return tiled_product(self.kernel, self.x[index], self.x, v)

    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        if self.kept is not None:
            return self.kept.kernel_columns(index, u)
        points = self.x[index]
        return in_row_blocks(
            lambda rows: tiled_product(self.kernel, self.x[rows], points, u), self.n, u.shape[1], u.dtype
        )

    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        dtype = jnp.dtype(dtype or self.dtype)
        if self.kept is not None and dtype == self.dtype:
            return self.kept.kernel_block(rows, columns)
        return self.kernel(self.x[rows].astype(dtype), self.x[columns].astype(dtype))

    def kernel_diagonal(self) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.x)

    def features(self, key: RandomKey, num: int) -> Features:
        return self.kernel.features(key, num, self.x.shape[1])

    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        return features(self.x)

    def coordinates(self) -> Float[Array, "n c"]:
        return self.kernel.coordinates(self.x)

    @in_wide
    def dense(self) -> Float[np.ndarray, "n n"]:
        matrix = np.empty((self.n, self.n))
        x = jnp.asarray(self.x, jnp.float64)
        for start in range(0, self.n, ROW_BLOCK):
            matrix[start : start + ROW_BLOCK] = _block(self.kernel, x[start : start + ROW_BLOCK], x)
        np.fill_diagonal(matrix, matrix.diagonal() + float(self.noise))
        return matrix


def tiled_product(kernel: Kernel, rows: Points, x: Points, v: Columns) -> Float[Array, "m s"]:
    """k(rows, x) @ v without ever holding k(rows, x): a sum over tiles of columns, differentiable in O(tile) memory."""
    block = kernel.against(rows)

    @jax.checkpoint  # the backward pass computes a tile again rather than keeping all of them
    def term(x_tile: Points, v_tile: Columns) -> Float[Array, "m s"]:
        return block(x_tile) @ v_tile

    return sum_over_tiles(term, x, v, rows.shape[0])


def sum_over_tiles(term: Callable[[Points, Columns], Any], x: Points, v: Columns, rows: int) -> Any:
    """The sum of term(x_tile, v_tile), an array or several, over tiles that suit a block of K with so many rows."""
    n, tile = x.shape[0], _tile(rows)

    def add(total: Any, start: Array) -> tuple[Any, None]:
        x_tile = jax.lax.dynamic_slice_in_dim(x, start, tile)
        v_tile = jax.lax.dynamic_slice_in_dim(v, start, tile)
        return jax.tree.map(jnp.add, total, term(x_tile, v_tile)), None

    whole = n - n % tile
    shapes = jax.eval_shape(term, x[: min(n, tile)], v[: min(n, tile)])
    total = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    if whole:
        total, _ = jax.lax.scan(add, total, jnp.arange(0, whole, tile, dtype=jnp.int32))
    return jax.tree.map(jnp.add, total, term(x[whole:], v[whole:])) if whole < n else total


def precision(x: Points) -> np.dtype:
    """The precision that goes with inputs as they are kept: their own, and float32 for bytes."""
    return np.result_type(x.dtype, np.float32)


def _tile(rows: int) -> int:
    """Columns in a tile for this many rows: a power of two, so that the tile has about TILE_ENTRIES entries."""
    return 1 << max(9, min(14, (TILE_ENTRIES // max(rows, 1)).bit_length() - 1))


@eqx.filter_jit
def _product(operator: Operator, v: Columns) -> Columns:
    return operator @ v


@eqx.filter_jit
def _block(kernel: Kernel, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
    return kernel(x1, x2)


@eqx.filter_jit
def _assemble(kernel: Kernel, x: Points, dtype: np.dtype) -> Float[Array, "n n"]:
    return in_row_blocks(lambda rows: kernel(x[rows], x), x.shape[0], x.shape[0], dtype)


def in_row_blocks(
    function: Callable[[Indices], Float[Array, "batch s"]], n: int, s: int, dtype: Any
) -> Float[Array, "n s"]:
    """The (n, s) array whose rows are function(rows), filled in place one block of rows after the other."""
    size = min(ROW_BLOCK, n)

    def fill(i: Array, whole: Array) -> Array:
        start = jnp.minimum(i * size, n - size)  # the last block overlaps the one before
        block = function(start + jnp.arange(size, dtype=jnp.int32))
        return jax.lax.dynamic_update_slice_in_dim(whole, block, start, axis=0)

    return jax.lax.fori_loop(0, math.ceil(n / size), fill, jnp.zeros((n, s), dtype))


def check_noise(noise: Any) -> None:
    """Noise is one positive number."""
    check_positive(
        noise,
        "noise (a variance)",
        "For noise-free data use a small value such as 1e-6 times the variance of y.",
    )
    if np.ndim(noise) != 0:
        raise ValueError(f"noise must be one number, got shape {np.shape(noise)}: it is the same for every row.")


def _check_distances(coordinates: Float[Array, "n c"]) -> None:
    """Squared distances must not overflow: inf - inf would be a NaN in the middle of a solve."""
    if is_traced(coordinates):
        return
    largest = float(jnp.max(jnp.abs(coordinates), initial=0.0))
    if not largest**2 * 8 * coordinates.shape[1] < float(jnp.finfo(coordinates.dtype).max):
        raise ValueError(
            f"x divided by the lengthscales reaches {largest:.1g}: squared distances overflow {coordinates.dtype}. "
            "Scale the inputs, for example to standard deviation 1."
        )


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's where that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    try:
        with open("/sys/fs/cgroup/memory.max") as limit:
            return min(total, int(limit.read()))
    except (OSError, ValueError):
        return total
