"""A = K + noise * I over many devices: each holds its share of the rows of x, and of every column that a solver has.

A product of B rows is, on each device, tiles of its own share of K, and then one all-reduce of B x s numbers. Solvers
do not know: their gathers and scatters of B rows are JAX's own, on arrays whose rows are spread.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from dualgp._arrays import as_parameter, compiled, in_wide, is_traced
from dualgp._types import AnyArray, Columns, Indices, Points, RandomKey
from dualgp.kernels import Features, Kernel
from dualgp.operators.base import Operator
from dualgp.operators.kernel import (
    KernelOperator,
    check_distances,
    check_noise,
    is_soon_computed,
    measure_extent,
    needs_care,
)
from dualgp.operators.memory import KEEP_SHARE, machine_memory
from dualgp.operators.spread import EVERYWHERE, on_devices
from dualgp.operators.tiles import in_row_blocks, precision, tiled_product
from dualgp.sharding import Layout, agreed, as_mesh, checksum

# Inputs that take no more than this are on every device as well. Neighbourhoods need all of them now and then anyway,
# and a step then sends nothing but its B x s sums.
COPIED_BYTES = 1 << 30


class ShardedOperator(Operator):
    """A = k(x, x) + noise * I for data spread over a mesh of devices.

    **Arguments:**

    - `kernel`, `noise`, `dtype`: as for `KernelOperator`.
    - `x` (n, d): the whole data, in every process the same. A memory map, or anything else with a shape and slices, is
      read only where this process has rows.
    - `mesh`: a `jax.sharding.Mesh`, a number of devices, "all" or a list of them.
    - `memory`: bytes that each device may spend on keeping its share of K, by default its part of a quarter of the
      machine's. `few_passes`: as for `KernelOperator`.
    """

    kernel: Kernel
    x: Float[AnyArray, "height d"]
    noise: AnyArray
    kept: Float[AnyArray, "n height"] | None
    copied: Float[AnyArray, "height d"] | None
    layout: Layout = eqx.field(static=True)
    careful: bool = eqx.field(static=True)

    @in_wide
    def __init__(
        self,
        kernel: Kernel,
        x: Any,
        noise: Any,
        *,
        mesh: Mesh | Any,
        memory: int | None = None,
        few_passes: bool = False,
        dtype: Any = None,
    ) -> None:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be a dualgp kernel such as Matern32(), got {type(kernel).__name__}.")
        x = x if hasattr(x, "shape") else np.asarray(x)
        if x.shape[0] == 0:
            raise ValueError(f"x has no rows (shape {x.shape}). Pass at least one data point.")
        check_noise(noise)
        self.kernel, self.noise, self.layout = kernel, as_parameter(noise), Layout(x.shape[0], as_mesh(mesh))
        dtype = np.result_type(x.dtype, np.float32) if dtype is None else dtype
        own = np.asarray(kernel.stored(kernel.points(np.asarray(x[self.layout.own])), dtype))
        # Padded with a real point: zeros could lie far away, and distances are centred on what is evaluated.
        self.x = self.layout.place(own, own[0] if len(own) else 0.0)
        extent = eqx.filter_jit(measure_extent)(kernel, self.x)
        check_distances(kernel, self.x, extent)
        self.careful = needs_care(self, extent)
        if memory is None and few_passes and is_soon_computed(self):
            memory = 0
        self.kept = _keep(kernel, self.x, self.layout, self.careful) if self._fits(memory) else None
        self.copied = _copied(self.x, self.layout) if self.x.nbytes <= COPIED_BYTES else None

    @property
    def n(self) -> int:
        return self.layout.n

    @property
    def dtype(self) -> np.dtype:
        return precision(self.x)

    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        return self._rows(index, v, jnp.zeros((), self.dtype), None)

    def rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        return self._rows(index, v, self._noise, None)

    def residual(self, index: Indices, v: Columns, b: Columns) -> Float[Array, "batch s"]:
        return self._rows(index, v, self._noise, b)

    def _rows(self, index: Indices, v: Columns, noise: Float[Array, ""], b: Columns | None) -> Float[Array, "batch s"]:
        """K[index] @ v + noise * v[index] - b[index], by one all-reduce: each term apart would be as much to send."""

        def part(kernel: Kernel, source: Any, v: Columns, b: Any, index: Indices, noise: Array) -> Columns:
            kept, points, x = source
            product = tiled_product(kernel, points, x, v, self.careful) if kept is None else kept[index] @ v
            here = index - self._first_row()
            is_here, place = (here >= 0) & (here < v.shape[0]), jnp.clip(here, 0, v.shape[0] - 1)
            own = noise * v[place] if b is None else noise * v[place] - b[place]
            return jax.lax.psum(product + jnp.where(is_here[:, None], own, 0.0), self.layout.axes)

        rows, columns = self.layout.rows, PartitionSpec(None, self.layout.axes)
        specs = (EVERYWHERE, (columns, EVERYWHERE, rows), rows, rows, EVERYWHERE, EVERYWHERE)
        source = (None, self._points(index), self.x) if self.kept is None else (self.kept, None, None)
        v = jax.lax.with_sharding_constraint(v, self.layout.sharding)
        return self._on_devices(part, specs, EVERYWHERE)(self.kernel, source, v, b, index, noise)

    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "height s"]:
        def part(kernel: Kernel, x: Points, points: Points, u: Columns) -> Columns:
            block = lambda rows: tiled_product(kernel, x[rows], points, u, self.careful)  # noqa: E731
            return in_row_blocks(block, x.shape[0], u.shape[1], u.dtype)

        specs = (EVERYWHERE, self.layout.rows, EVERYWHERE, EVERYWHERE)
        product = self._on_devices(part, specs, self.layout.rows)(self.kernel, self.x, self._points(index), u)
        return self._data_only(product)

    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        dtype = jnp.dtype(dtype or self.dtype)
        points = self._points(rows).astype(dtype)
        return self.kernel(points, points if columns is rows else self._points(columns).astype(dtype))

    def kernel_diagonal(self) -> Float[Array, " height"]:
        return self._data_only(self.kernel.diagonal(self.x)[:, None])[:, 0]

    def features(self, key: RandomKey, num: int) -> Features:
        return self.kernel.features(key, num, self.x.shape[1])

    def feature_matrix(self, features: Features) -> Float[Array, "height num"]:
        return self._data_only(features(self.x))

    def coordinates(self) -> Float[Array, "n c"]:
        # Every process cuts the neighbourhoods for itself: n x c numbers on each device, for as long as it takes.
        x = self.x if self.copied is None else self.copied
        return _coordinates(self.kernel, x, self.layout)

    def part(self, index: Int[np.ndarray, " rows"]) -> ShardedOperator:
        x, memory = self.layout.collect(self.x)[index], 0 if self.kept is None else None
        return ShardedOperator(self.kernel, x, self.noise, mesh=self.layout.mesh, memory=memory, dtype=self.dtype)

    def dense(self) -> Float[np.ndarray, "n n"]:
        return KernelOperator(self.kernel, self.layout.collect(self.x), self.noise, memory=0).dense()

    def __matmul__(self, v: AnyArray) -> AnyArray:
        if is_traced(self, v):
            return self._pass(v)
        columns = np.asarray(v, self.dtype).reshape(self.n, -1)
        return self.layout.collect(_whole_pass(self, self.layout.place_whole(columns))).reshape(np.shape(v))

    def _pass(self, v: Columns) -> Float[Array, "height s"]:
        """A @ v: shares of x and v go round the devices, and each adds their part of its own rows."""
        turns = self.layout.num_devices
        ring = [(i, (i + 1) % turns) for i in range(turns)]

        def part(kernel: Kernel, x: Points, v: Columns, noise: Array) -> Columns:
            def turn(_: Array, carry: tuple[Columns, Points, Columns]) -> tuple[Columns, Points, Columns]:
                total, x_there, v_there = carry
                block = lambda rows: tiled_product(kernel, x[rows], x_there, v_there, self.careful)  # noqa: E731
                total = total + in_row_blocks(block, x.shape[0], v.shape[1], v.dtype)
                return total, *(jax.lax.ppermute(a, self.layout.axes, ring) for a in (x_there, v_there))

            return jax.lax.fori_loop(0, turns, turn, (noise * v, x, v))[0]

        specs = (EVERYWHERE, self.layout.rows, self.layout.rows, EVERYWHERE)
        product = self._on_devices(part, specs, self.layout.rows)(self.kernel, self.x, v, self._noise)
        return self._data_only(product)

    def holds(self, array: Any) -> bool:
        return self.layout.holds(array)

    def place(self, array: AnyArray) -> Columns:
        return self.layout.place_whole(np.asarray(array, self.dtype))

    def settled(self, state: Any) -> Any:
        return jax.tree.map(self.layout.settle, state)

    def collect(self, columns: AnyArray) -> np.ndarray:
        return self.layout.collect(columns)

    @property
    def is_alone(self) -> bool:
        return jax.process_count() == 1

    def agreed(self, seconds: float) -> float:
        return agreed(seconds)

    def problem(self, *columns: Columns) -> Any:
        x = jnp.where(self.layout.is_data(), self.x, 0.0)
        sums = [int(checksum(array)) for array in (x, *columns)]
        return self.kernel, self.noise, self.n, self.x.shape[1], str(self.dtype), sums

    def own_x(self) -> Float[np.ndarray, "own d"]:
        """The rows of x that this process holds."""
        shards = sorted(self.x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        own = self.layout.own
        return np.concatenate([np.asarray(shard.data) for shard in shards])[: own.stop - own.start]

    def _points(self, index: Indices) -> Points:
        """x[index] on every device: an all-reduce of B x d numbers, unless each has a copy of x."""
        return self._everywhere((self.x if self.copied is None else self.copied)[index])

    def _everywhere(self, array: Array) -> Array:
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.layout.mesh, EVERYWHERE))

    def _data_only(self, array: Columns) -> Array:
        array = jnp.where(self.layout.is_data(), array, 0.0)
        return jax.lax.with_sharding_constraint(array, self.layout.sharding)

    def _first_row(self) -> Array:
        """Of this device's share, inside `_on_devices`."""
        return jax.lax.axis_index(self.layout.axes).astype(jnp.int32) * self.layout.share

    def _on_devices(self, function: Any, specs: Any, out: PartitionSpec) -> Any:
        return on_devices(function, self.layout, specs, out)

    def _fits(self, memory: int | None) -> bool:
        """Whether K is kept: the same answer in every process, as hosts may differ in memory."""
        per_device = KEEP_SHARE * machine_memory() / jax.local_device_count() if memory is None else memory
        return self.n * self.layout.share * self.dtype.itemsize <= agreed(per_device)


@compiled
def _whole_pass(operator: ShardedOperator, v: Columns) -> Columns:
    return operator @ v


@eqx.filter_jit
def _copied(x: Points, layout: Layout) -> Points:
    return jax.lax.with_sharding_constraint(x, NamedSharding(layout.mesh, EVERYWHERE))


@eqx.filter_jit
def _coordinates(kernel: Kernel, x: Points, layout: Layout) -> Float[Array, "n c"]:
    everywhere = NamedSharding(layout.mesh, EVERYWHERE)
    return jax.lax.with_sharding_constraint(kernel.coordinates(x), everywhere)[: layout.n]


@compiled
def _keep(kernel: Kernel, x: Points, layout: Layout, careful: bool) -> Float[Array, "n height"]:
    """K, each device with the columns of its own rows: a product then reads whole rows of its share."""
    everything = jax.lax.with_sharding_constraint(x, NamedSharding(layout.mesh, EVERYWHERE))

    def part(kernel: Kernel, everything: Points, x: Points) -> Float[Array, "n share"]:
        block = lambda rows: kernel.against(everything[rows], x, careful)(x)  # noqa: E731
        return in_row_blocks(block, layout.n, x.shape[0], precision(x))

    specs, columns = (EVERYWHERE, EVERYWHERE, layout.rows), PartitionSpec(None, layout.axes)
    return on_devices(part, layout, specs, columns)(kernel, everything, x)
