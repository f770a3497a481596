"""The matrix of a kernel at data: kept where it fits, otherwise computed tile by tile whenever it is needed."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import as_parameter, compiled, in_wide, is_traced
from dualgp._checks import check_finite, check_positive
from dualgp._types import AnyArray, Columns, Indices, Points, RandomKey
from dualgp.kernels import Features, Kernel
from dualgp.operators.base import Operator
from dualgp.operators.dense import DenseOperator
from dualgp.operators.evaluation import CrossProduct, evaluate
from dualgp.operators.memory import KEEP_SHARE, machine_memory
from dualgp.operators.tiles import ROW_BLOCK, in_row_blocks, precision, tiled_product

LARGE_ERROR = 0.5  # of K in float32, against the noise


class KernelOperator(Operator):
    """A = k(x, x) + noise * I for a kernel and data.

    **Arguments:**

    - `kernel`, `x` of shape (n, d), `noise`: a variance, positive.
    - `memory`: bytes that may be spent on keeping K; by default a quarter of the machine's memory. K is kept if it fits
      (each product then reads it), otherwise its entries are computed whenever they are needed. 0 means always.
    - `few_passes`: whether K is needed a few times only. Then, without `memory`, it is not kept where that takes
      as long as it saves.
    - `dtype`: the precision; by default that of `x` (float32 or float64; wide integers become float64, bytes float32).
    """

    kernel: Kernel
    x: Points
    noise: AnyArray
    kept: DenseOperator | None
    careful: bool = eqx.field(static=True)

    @in_wide
    def __init__(
        self,
        kernel: Kernel,
        x: Any,
        noise: Any,
        *,
        memory: int | None = None,
        few_passes: bool = False,
        dtype: Any = None,
    ) -> None:
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
        self.noise = as_parameter(noise)
        extent = None if is_traced(kernel, self.x, self.noise) else measure_extent(kernel, np.asarray(self.x))
        check_distances(kernel, self.x, extent)
        self.careful = needs_care(self, extent)
        if memory is None:
            memory = 0 if few_passes and is_soon_computed(self) else round(KEEP_SHARE * machine_memory())
        fits = self.n**2 * self.dtype.itemsize <= memory
        self.kept = DenseOperator(_assemble(kernel, self.x, self.careful), self.noise) if fits else None

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def dtype(self) -> np.dtype:
        return precision(self.x)

    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        if self.kept is not None:
            return self.kept.kernel_rows(index, v)
        return tiled_product(self.kernel, self.x[index], self.x, v, self.careful)

    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        if self.kept is not None:
            return self.kept.kernel_columns(index, u)
        points = self.x[index]
        return in_row_blocks(
            lambda rows: tiled_product(self.kernel, self.x[rows], points, u, self.careful), self.n, u.shape[1], u.dtype
        )

    def residual_on_host(self, index: Indices, v: Columns, b: Columns) -> Float[np.ndarray, "batch s"]:
        if self.kept is not None:
            return super().residual_on_host(index, v, b)
        x, v_rows, b_rows = (np.asarray(array)[index] for array in (self.x, v, b))
        product = evaluate(CrossProduct(self.kernel, self.x, v, careful=self.careful), x, self.x, self.kernel)
        return product + np.asarray(self.noise, product.dtype) * v_rows - b_rows

    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        # Also where K is kept: 600 x 600 entries from all over 900 MB take 4 ms, to compute them takes 1.
        dtype = jnp.dtype(dtype or self.dtype)
        points = self.x[rows].astype(dtype)
        return self.kernel(points, points if columns is rows else self.x[columns].astype(dtype))

    def kernel_diagonal(self) -> Float[Array, " n"]:
        return jnp.asarray(self.kernel.diagonal(self.x))

    def features(self, key: RandomKey, num: int) -> Features:
        return self.kernel.features(key, num, self.x.shape[1])

    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        return features(self.x)

    def largest_variance(self) -> float:
        return float(np.max(np.asarray(self.kernel.diagonal(np.asarray(self.x)))))

    def coordinates(self) -> Float[AnyArray, "n c"]:
        return self.kernel.coordinates(np.asarray(self.x))

    def part(self, index: Int[np.ndarray, " rows"]) -> "KernelOperator":
        memory = 0 if self.kept is None else None
        return KernelOperator(self.kernel, self.x[index], self.noise, memory=memory, dtype=self.dtype)

    def problem(self, *columns: Columns) -> Any:
        return self.kernel, self.x, self.noise, *columns  # whether K is kept makes no difference

    @in_wide
    def dense(self) -> Float[np.ndarray, "n n"]:
        matrix = np.empty((self.n, self.n))
        x = jnp.asarray(self.x, jnp.float64)
        for start in range(0, self.n, ROW_BLOCK):
            matrix[start : start + ROW_BLOCK] = _block(self.kernel, x[start : start + ROW_BLOCK], x)
        np.fill_diagonal(matrix, matrix.diagonal() + float(self.noise))
        return matrix


@eqx.filter_jit
def _block(kernel: Kernel, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
    return kernel(x1, x2)


@compiled
def _assemble(kernel: Kernel, x: Points, careful: bool) -> Float[Array, "n n"]:
    return in_row_blocks(lambda rows: kernel.against(x[rows], x, careful)(x), x.shape[0], x.shape[0], precision(x))


def is_soon_computed(operator: Any) -> bool:
    """Whether a few passes over K take no longer if its entries are computed each time.

    In float32 entries of stationary kernels are: the mean on bike takes 0.5 s instead of 0.9, 64 samples as long with K
    kept as without, and with 1 GB less.
    """
    return operator.kernel.is_stationary and operator.dtype == jnp.float32


class Extent(NamedTuple):
    """How far the data reach in units of the lengthscales: the largest coordinate, the mean squared norm if centred."""

    largest: Float[AnyArray, ""]
    squared: Float[AnyArray, ""]


def measure_extent(kernel: Kernel, x: Points) -> Extent:
    """By NumPy for its arrays, by JAX for others."""
    with np.errstate(over="ignore"):  # coordinates that are too large for their squares are refused
        coordinates: Any = kernel.coordinates(x)
        centred = coordinates - coordinates.mean(axis=0)
        return Extent(abs(coordinates).max(initial=0.0), (centred**2).sum(axis=1).mean())


def needs_care(operator: Any, extent: Extent | None) -> bool:
    """Whether usual arithmetic in float32 makes errors of K that are not small against the noise.

    A squared distance has an error of about eps times the squared norms of the two points, and K one whose eigenvalues
    are sqrt(n) times as large. In units of the noise that is 0.9 on bike, where care pays (8.4 passes become 5.9), 0.5
    on 40,000 rows of houseelectric, where it made no difference that counts, 0.4 on protein and 0.01 on pol. A pass
    takes up to a fifth longer with 9 to 26 inputs, and half as long again with 90.
    """
    if extent is None or not (operator.kernel.is_stationary and operator.dtype == jnp.float32):
        return False
    error = float(jnp.finfo(jnp.float32).eps) * float(extent.squared) * math.sqrt(operator.n)
    return error * operator.largest_variance() > LARGE_ERROR * float(operator.noise)


def check_noise(noise: Any) -> None:
    """Noise is one positive number."""
    check_positive(
        noise,
        "noise (a variance)",
        "For noise-free data use a small value such as 1e-6 times the variance of y.",
    )
    if np.ndim(noise) != 0:
        raise ValueError(f"noise must be one number, got shape {np.shape(noise)}: it is the same for every row.")


def check_distances(kernel: Kernel, x: Points, extent: Extent | None) -> None:
    """Squared distances must not overflow: inf - inf would be a NaN in the middle of a solve."""
    if extent is None:
        return
    largest = np.asarray(extent.largest)
    if not float(largest) ** 2 * 8 * x.shape[1] < float(jnp.finfo(largest.dtype).max):
        raise ValueError(
            f"x divided by the lengthscales reaches {largest:.1g}: squared distances overflow {largest.dtype}. "
            "Scale the inputs, for example to standard deviation 1."
        )
