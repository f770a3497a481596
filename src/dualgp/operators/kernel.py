"""The matrix of a kernel at data: kept if it fits into memory, otherwise computed tile by tile for each product."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import compiled, in_wide, is_traced
from dualgp._checks import check_finite, check_memory
from dualgp._types import AnyArray, Columns, Indices, Points, RandomKey
from dualgp.kernels import Features, Kernel
from dualgp.operators import policy
from dualgp.operators.base import Operator
from dualgp.operators.cross import CrossProduct, evaluate
from dualgp.operators.layout import EVERYWHERE, Layout, Local, make_layout, replicate
from dualgp.operators.noise import Noise, as_noise
from dualgp.operators.tiles import in_row_blocks, precision, tiled_product


class KernelOperator(Operator):
    """A = k(x, x) + diag(noise) for a kernel and data.

    **Arguments:**

    - `kernel`, `x` of shape (n, d), `noise`: a variance, positive, or (n,) of them, one for each row.
    - `mesh`: devices to shard the rows over: a `jax.sharding.Mesh`, a number, "all" or a list; by default none. Every
      process passes the whole data as x. A memory map, or anything else with a shape and slices, is read only where
      this process has rows.
    - `memory`: bytes of each device that may keep K; by default a quarter of its memory. If K fits, it is kept and each
      product reads it. Otherwise, and always with 0, each product computes its entries.
    - `few_passes`: whether K is needed a few times only. Then, without `memory`, it is not kept unless that saves time.
    - `dtype`: the precision; by default that of `x` (float32 or float64; wide integers become float64, bytes float32).

    A product of B rows with sharded data is, on each device, tiles of its own columns of K, and one all-reduce of B x s
    numbers.
    """

    kernel: Kernel
    x: Points
    noise: Noise
    kept: Float[AnyArray, "n height"] | None
    replicated: Points | None  # x on every device, where its shards are small enough for that
    layout: Layout = eqx.field(static=True)
    careful: bool = eqx.field(static=True)

    @in_wide
    def __init__(
        self,
        kernel: Kernel,
        x: Any,
        noise: Any,
        *,
        mesh: Any = None,
        memory: int | None = None,
        few_passes: bool = False,
        dtype: Any = None,
    ) -> None:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be a dualgp kernel such as Matern32(), got {type(kernel).__name__}.")
        check_memory(memory)
        given = np.dtype(getattr(x, "dtype", np.float64))
        x = kernel.points(x) if mesh is None or not hasattr(x, "shape") else x
        if dtype is None:  # counts that are kept as bytes have the precision that they were given in
            dtype = np.result_type(given if x.dtype == np.uint8 and given.kind in "fiu" else x.dtype, np.float32)
            dtype = min(np.dtype(dtype), np.dtype(np.float64), key=lambda one: one.itemsize)
        if x.shape[0] == 0:
            raise ValueError(f"x has no rows (shape {x.shape}). Pass at least one data point.")
        self.kernel, self.noise, self.layout = kernel, as_noise(noise, x.shape[0]), make_layout(x.shape[0], mesh)
        own = kernel.stored(x if mesh is None else kernel.points(np.asarray(x[self.layout.own])), dtype)
        check_finite(own, "x in the operator's precision")
        # Padded with a real point: zeros could lie far away, and distances are centred on what is evaluated.
        self.x = self.layout.place_own(own, repeat_first=True)
        self.replicated = self._replicate()
        self.careful, self.kept = False, None
        if not is_traced(kernel, self.x, self.noise):
            self.careful = self._needs_care(_extent(kernel, self.x, self.layout))
            self.kept = self._keep(memory, few_passes)

    @property
    def dtype(self) -> np.dtype:
        return precision(self.x)

    def rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        return self._rows(index, v, None)

    def residual(self, index: Indices, v: Columns, b: Columns) -> Float[Array, "batch s"]:
        return self._rows(index, v, b)

    def _rows(self, index: Indices, v: Columns, b: Columns | None) -> Float[Array, "batch s"]:
        """A[index] @ v - b[index] with one all-reduce for both terms."""
        layout = self.layout

        def shard(kernel: Kernel, source: Any, v: Columns, b: Any, index: Indices, noise: AnyArray) -> Columns:
            kept, points, x = source
            product = tiled_product(kernel, points, x, v, self.careful) if kept is None else kept[index] @ v
            own = noise[:, None] * layout.take(v, index)
            return layout.sum_shards(product + (own if b is None else own - layout.take(b, index)))

        rows = layout.rows
        specs = (EVERYWHERE, (layout.columns, EVERYWHERE, rows), rows, rows, EVERYWHERE, EVERYWHERE)
        source = (None, self._points(index), self.x) if self.kept is None else (self.kept, None, None)
        noise = self.noise.diagonal(index, v.dtype)
        return layout.map_shards(shard, specs, EVERYWHERE)(self.kernel, source, v, b, index, noise)

    def columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "height s"]:
        layout = self.layout

        def shard(kernel: Kernel, source: Any, index: Indices, u: Columns) -> Columns:
            kept, x, points = source
            if kept is not None:
                return kept[index].T @ u
            block = lambda rows: tiled_product(kernel, x[rows], points, u, self.careful)  # noqa: E731
            return in_row_blocks(block, x.shape[0], u.shape[1], u.dtype, policy.tile_width(u.shape[0]))

        specs = (EVERYWHERE, (layout.columns, layout.rows, EVERYWHERE), EVERYWHERE, EVERYWHERE)
        source = (None, self.x, self._points(index)) if self.kept is None else (self.kept, None, None)
        product = layout.map_shards(shard, specs, layout.rows)(self.kernel, source, index, u)
        noise = self.noise.diagonal(index, product.dtype)[:, None]
        return layout.data_only(product.at[index].add(noise * u))

    def block(self, index: Indices, dtype: Any = None) -> Float[Array, "batch batch"]:
        # Computed even if K is kept: gathering 600 x 600 entries from 900 MB takes 4 ms, computing them 1 ms.
        dtype = jnp.dtype(dtype or self.dtype)
        points = self._points(index)
        points = points if points.dtype == jnp.uint8 and dtype == jnp.float32 else points.astype(dtype)
        block = self.kernel.against(points, points, self.careful)(points)
        return block + jnp.diag(self.noise.diagonal(index, block.dtype))

    def diagonal(self) -> Float[Array, " height"]:
        rows = jnp.arange(self.layout.height, dtype=jnp.int32)
        diagonal = jnp.asarray(self.kernel.diagonal(self.x)) + self.noise.diagonal(rows, self.dtype)
        return self.layout.data_only(diagonal[:, None])[:, 0]

    def product(self, v: Columns) -> Columns:
        layout = self.layout

        def shard(kernel: Kernel, kept: Any, x: Points, v: Columns, noise: AnyArray) -> Columns:
            if kept is not None:
                return noise[:, None] * v + layout.take_own(layout.sum_shards(kept @ v))

            def add(total: Columns, x_there: Points, v_there: Columns) -> Columns:
                block = lambda rows: tiled_product(kernel, x[rows], x_there, v_there, self.careful)  # noqa: E731
                return total + in_row_blocks(block, x.shape[0], v.shape[1], v.dtype)

            return layout.visit_shards(add, noise[:, None] * v, (x, v))

        specs = (EVERYWHERE, layout.columns, layout.rows, layout.rows, layout.rows)
        noise = self.noise.diagonal(jnp.arange(layout.height, dtype=jnp.int32), v.dtype)
        return layout.data_only(layout.map_shards(shard, specs, layout.rows)(self.kernel, self.kept, self.x, v, noise))

    @in_wide
    def dense(self) -> Float[np.ndarray, "n n"]:
        matrix, size = np.empty((self.n, self.n)), policy.ROW_BLOCK
        x = np.asarray(self.layout.collect(self.x), np.float64)
        x = np.pad(x, ((0, policy.padded(self.n) - self.n), (0, 0)), "edge")
        for start in range(0, self.n, size):
            block, rows = np.asarray(_block(self.kernel, x[start : start + size], x)), matrix[start : start + size]
            rows[...] = block[: len(rows), : self.n]
        np.fill_diagonal(matrix, matrix.diagonal() + np.asarray(self.noise.variance, np.float64))
        return matrix

    def coordinates(self) -> Float[AnyArray, "n c"]:
        # Every process cuts the neighbourhoods of all rows by itself.
        return self.kernel.coordinates(self.layout.read_rows(self.x if self.replicated is None else self.replicated))

    def cross(self, weights: Columns) -> CrossProduct:
        """k(points, x) @ weights as a function of points, with the operator's precision and placement."""
        return CrossProduct(self.kernel, self.x, weights, self.layout)

    def check_rows(self, index: Indices, v: Columns, b: Columns) -> Float[np.ndarray, "batch s"]:
        x, v_rows, b_rows = (self.layout.read_rows(array, index) for array in (self.x, v, b))
        product = evaluate(self.cross(v), x, self.x, self.kernel)
        return product + np.asarray(self.noise.diagonal(index, product.dtype))[:, None] * v_rows - b_rows

    def subset(self, index: Int[np.ndarray, " rows"]) -> KernelOperator:
        x, memory = self.layout.collect(self.x)[index], 0 if self.kept is None else None
        noise, mesh = self.noise.subset(index), self.layout.mesh
        return KernelOperator(self.kernel, x, noise, mesh=mesh, memory=memory, dtype=self.dtype)

    def fingerprint(self, *columns: Columns) -> Any:
        # A run may resume whether or not K is kept.
        arrays = [self.layout.summarise(array) for array in (self.x, *columns)]
        return self.kernel, self.noise, self.n, str(self.dtype), arrays

    def features(self, key: RandomKey, num: int) -> Features:
        return self.kernel.features(key, num, self.x.shape[1])

    def feature_matrix(self, features: Features) -> Float[Array, "height num"]:
        return self.layout.data_only(features(self.x))

    def largest_variance(self) -> float:
        x = np.asarray(self.x) if isinstance(self.layout, Local) else self.x  # NumPy compiles nothing
        return float(self.kernel.diagonal(x).max())

    def stretch(self) -> float:
        if not self.kernel.falls_with_distance:
            return 0.0
        some = np.random.default_rng(0).choice(self.n, min(self.n, policy.STRETCH_ROWS), replace=False)
        rows = self.kernel.coordinates(self.layout.read_rows(self.x, np.sort(some).astype(np.int32)))
        return policy.stretch(np.asarray(rows, np.float64))

    def _points(self, index: Indices) -> Points:
        """x[index] on every device: an all-reduce of B x d numbers, unless each has a copy of x."""
        return self.layout.everywhere((self.x if self.replicated is None else self.replicated)[index])

    def _replicate(self) -> Points | None:
        if isinstance(self.layout, Local) or self.x.nbytes > policy.REPLICATED_BYTES:
            return None
        return replicate(self.layout, self.x)

    def _needs_care(self, extent: Extent) -> bool:
        _check_distances(self.x.shape[1], extent)
        if not (self.kernel.falls_with_distance and self.dtype == jnp.float32):
            return False
        return policy.needs_care(self.n, float(extent.squared), self.largest_variance(), self.noise.smallest)

    def _keep(self, memory: int | None, few_passes: bool) -> Float[Array, "n height"] | None:
        """K, sharded by columns, if it fits; None otherwise. All processes decide alike."""
        device = jnp.asarray(self.x).addressable_shards[0].device
        is_shared = self.layout.mesh is not None and device.platform == "cpu"  # CPU devices share the machine's memory
        most = policy.memory_of(device) / (jax.local_device_count("cpu") if is_shared else 1)
        size = self.n * self.layout.height // self.layout.num_devices * self.dtype.itemsize
        is_cheap = few_passes and self.kernel.falls_with_distance and self.dtype == jnp.float32
        fits = policy.keeps_kernel_matrix(size, memory, most, is_cheap)
        return _assemble(self.kernel, self.x, self.layout, self.careful) if self.layout.agree(fits) else None


class Extent(NamedTuple):
    """The size of the data in lengthscales: the largest coordinate, and the mean squared norm after centring."""

    largest: Float[AnyArray, ""]
    squared: Float[AnyArray, ""]


def _extent(kernel: Kernel, x: Points, layout: Layout) -> Extent:
    """The size of the data; by NumPy, which compiles nothing, if this process has all rows."""
    if isinstance(layout, Local):
        return _measure(kernel, np.asarray(x))
    return eqx.filter_jit(_measure)(kernel, x)


def _measure(kernel: Kernel, x: Points) -> Extent:
    with np.errstate(over="ignore"):  # coordinates whose squares overflow are refused later
        coordinates: Any = kernel.coordinates(x)
        centred = coordinates - coordinates.mean(axis=0)
        return Extent(abs(coordinates).max(initial=0.0), (centred**2).sum(axis=1).mean())


def _check_distances(d: int, extent: Extent) -> None:
    """Refuse coordinates whose squared distances overflow: inf - inf would be a NaN in a solve."""
    largest = np.asarray(extent.largest)
    if not float(largest) < math.sqrt(float(jnp.finfo(largest.dtype).max) / (8 * d)):
        raise ValueError(
            f"x divided by the lengthscales reaches {largest:.1g}: squared distances overflow {largest.dtype}. "
            "Scale the inputs, for example to standard deviation 1."
        )


@eqx.filter_jit
def _block(kernel: Kernel, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
    return kernel(x1, x2)


@compiled
def _assemble(kernel: Kernel, x: Points, layout: Layout, careful: bool) -> Float[Array, "n height"]:
    """K, sharded by columns and computed in row blocks, so that a product reads whole rows of a shard."""

    def shard(kernel: Kernel, everything: Points, x: Points) -> Float[Array, "n shard"]:
        block = lambda rows: kernel.against(everything[rows], x, careful)(x)  # noqa: E731
        return in_row_blocks(block, layout.n, x.shape[0], precision(x))

    specs = (EVERYWHERE, EVERYWHERE, layout.rows)
    return layout.map_shards(shard, specs, layout.columns)(kernel, layout.everywhere(x), x)
