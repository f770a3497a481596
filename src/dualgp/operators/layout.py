"""Where the rows of a problem live: on one device (`Local`), or in shards on the devices of a mesh (`Sharded`).

An operator has a layout, which does everything that depends on placement, so that one operator serves both. JAX wants
shards of equal size: a sharded array has up to one row for each device more than there are data. This padding is zero
in all columns that a solver sees, and no random number depends on it: answers do not depend on the number of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, UInt

from dualgp._arrays import on_device
from dualgp._types import AnyArray, Columns, Indices

AXIS = "rows"
EVERYWHERE = PartitionSpec()


@dataclass(frozen=True)
class Local:
    """All rows on one device. `rows`, `columns` and `EVERYWHERE` are specs of the arguments of `map_shards`."""

    n: int

    mesh: ClassVar[None] = None
    num_devices: ClassVar[int] = 1
    rows: ClassVar[Any] = None
    columns: ClassVar[Any] = None

    @property
    def height(self) -> int:
        """Rows of an array, padding included."""
        return self.n

    @property
    def own(self) -> slice:
        """The rows of data that this process holds."""
        return slice(0, self.n)

    def place_own(self, own: AnyArray, repeat_first: bool = False) -> Array:
        """The array whose rows of this process are `own`; padding is zero, or repeats the first row."""
        return jnp.asarray(own)

    def place(self, array: AnyArray, dtype: Any) -> Columns:
        """(n, s) columns, placed for products. Only this process's rows of a memory map are read."""
        return on_device(array, dtype)

    def holds(self, array: Any) -> bool:
        """Whether an array has this placement already."""
        return False

    def replicate(self, state: Any) -> Any:
        """The state of a solver, placed as its steps return it, so that they are compiled once."""
        return state

    def collect(self, array: AnyArray) -> np.ndarray:
        """All n rows in the host's memory. With many hosts, every process must call it."""
        return np.asarray(array)

    def read_rows(self, array: AnyArray, index: Indices | None = None) -> np.ndarray:
        """array[index], or all rows, in the host's memory."""
        return np.asarray(array) if index is None else np.asarray(array)[index]

    def read_own(self, array: AnyArray) -> np.ndarray:
        """The rows that this process holds, in the host's memory."""
        return np.asarray(array)

    def summarise(self, array: AnyArray) -> Any:
        """A digest of an array for fingerprints; it does not depend on the placement."""
        return array

    @property
    def is_alone(self) -> bool:
        """Whether this is the only process. Only then may it stop without the others."""
        return True

    def agree(self, value: float) -> float:
        """The value of the first process, so that all processes decide alike."""
        return value

    def stack(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all processes, of one shape, stacked."""
        return array[None]

    def map_shards(self, function: Callable, specs: Any, out: Any) -> Callable:
        """`function` applied on each device to its shards of the arguments."""
        return function

    def sum_shards(self, array: AnyArray) -> Any:
        """Inside `map_shards`: the sum over all devices."""
        return array

    def take(self, array: AnyArray, index: Indices) -> Any:
        """Inside `map_shards`: array[index] for the rows of this shard, zero for others."""
        return array[index]

    def take_own(self, array: AnyArray) -> Any:
        """Inside `map_shards`: the rows of this shard, from an array with all rows."""
        return array

    def visit_shards(self, add: Callable, total: AnyArray, shards: tuple[AnyArray, ...]) -> Any:
        """Inside `map_shards`: add(total, *shards) for the shards of every device in turn."""
        return add(total, *shards)

    def everywhere(self, array: AnyArray) -> Any:
        """The array on every device."""
        return array

    def data_only(self, array: AnyArray) -> Any:
        """An (n, s) array whose padding is zero, placed like the data."""
        return array


@dataclass(frozen=True)
class Sharded:
    """n rows over the devices of a mesh, in order: each has `height / num_devices` of them, padding included.

    `Local` documents the methods.
    """

    n: int
    mesh: Mesh

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    @property
    def rows_per_device(self) -> int:
        """Rows of an array on each device, padding included."""
        return -(-self.n // self.num_devices)

    @property
    def height(self) -> int:
        return self.rows_per_device * self.num_devices

    @property
    def axes(self) -> tuple[str, ...]:
        """The names that collectives are given."""
        return self.mesh.axis_names

    @property
    def rows(self) -> PartitionSpec:
        return PartitionSpec(self.axes)

    @property
    def columns(self) -> PartitionSpec:
        return PartitionSpec(None, self.axes)

    @property
    def sharding(self) -> NamedSharding:
        """The sharding of an array with `height` rows."""
        return NamedSharding(self.mesh, self.rows)

    @cached_property
    def own(self) -> slice:
        shards = self.sharding.addressable_devices_indices_map((self.height, 1)).values()
        cuts = sorted(index[0].indices(self.height)[:2] for index in shards if index is not None)
        if any(stop != start for (_, stop), (start, _) in pairwise(cuts)):
            raise ValueError("The devices of a process must be neighbours in the mesh. Make it of jax.devices().")
        return slice(min(cuts[0][0], self.n), min(cuts[-1][1], self.n))

    def place_own(self, own: AnyArray, repeat_first: bool = False) -> Array:
        own, first = np.asarray(own), self.own.start

        def shard(index: tuple[slice, ...] | None) -> np.ndarray:
            start, stop, _ = index[0].indices(self.height) if index else (0, self.height, 1)
            rows = own[max(start - first, 0) : max(stop - first, 0)]
            if len(rows) == stop - start:
                return rows
            whole = np.zeros((stop - start, own.shape[1]), own.dtype)
            whole[:] = own[0] if repeat_first and len(own) else 0
            whole[: len(rows)] = rows
            return whole

        return jax.make_array_from_callback((self.height, own.shape[1]), self.sharding, shard)

    def place(self, array: AnyArray, dtype: Any) -> Columns:
        return self.place_own(np.asarray(array[self.own], dtype))

    def holds(self, array: Any) -> bool:
        return (
            isinstance(array, jax.Array)
            and array.shape[:1] == (self.height,)
            and array.sharding.is_equivalent_to(self.sharding, array.ndim)
        )

    def replicate(self, state: Any) -> Any:
        return jax.tree.map(self._replicate, state)

    def _replicate(self, array: Any) -> Any:
        if not isinstance(array, jax.Array) or isinstance(array.sharding, NamedSharding):
            return array
        values, everywhere = np.asarray(array), NamedSharding(self.mesh, EVERYWHERE)
        return jax.make_array_from_callback(values.shape, everywhere, lambda index: values[index])

    def collect(self, array: AnyArray) -> np.ndarray:
        return gather(array)[: self.n]

    def read_rows(self, array: AnyArray, index: Indices | None = None) -> np.ndarray:
        return np.asarray(replicate(self, array, index))[: self.n if index is None else None]

    def read_own(self, array: AnyArray) -> np.ndarray:
        shards = sorted(jnp.asarray(array).addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])[: self.own.stop - self.own.start]

    def summarise(self, array: AnyArray) -> Any:
        return array.shape[1], int(checksum(self, array))

    @property
    def is_alone(self) -> bool:
        return jax.process_count() == 1

    def agree(self, value: float) -> float:
        return agree(value)

    def stack(self, array: np.ndarray) -> np.ndarray:
        return array[None] if self.is_alone else np.asarray(multihost_utils.process_allgather(array))

    def map_shards(self, function: Callable, specs: Any, out: Any) -> Callable:
        # Sums over tiles start from zeros that are equal on all devices, which check_vma would refuse.
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)

    def sum_shards(self, array: AnyArray) -> Any:
        return jax.lax.psum(array, self.axes)

    def take(self, array: AnyArray, index: Indices) -> Any:
        here = index - self._first_row()
        is_here = (here >= 0) & (here < array.shape[0])
        return jnp.where(is_here[:, None], array[jnp.clip(here, 0, array.shape[0] - 1)], 0.0)

    def take_own(self, array: AnyArray) -> Any:
        padded = jnp.pad(array, ((0, self.height - array.shape[0]), (0, 0)))
        return jax.lax.dynamic_slice_in_dim(padded, self._first_row(), self.rows_per_device)

    def visit_shards(self, add: Callable, total: AnyArray, shards: tuple[AnyArray, ...]) -> Any:
        ring = [(i, (i + 1) % self.num_devices) for i in range(self.num_devices)]

        def turn(_: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
            total, *shards = carry
            return add(total, *shards), *(jax.lax.ppermute(shard, self.axes, ring) for shard in shards)

        return jax.lax.fori_loop(0, self.num_devices, turn, (total, *shards))[0]

    def everywhere(self, array: AnyArray) -> Any:
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, EVERYWHERE))

    def data_only(self, array: AnyArray) -> Any:
        is_data = jnp.arange(self.height, dtype=jnp.int32) < self.n
        array = jnp.where(is_data[:, None], array, jnp.zeros((), array.dtype))
        return jax.lax.with_sharding_constraint(array, self.sharding)

    def _first_row(self) -> Array:
        return jax.lax.axis_index(self.axes).astype(jnp.int32) * self.rows_per_device


Layout = Local | Sharded


def make_layout(n: int, devices: Mesh | int | str | Sequence[jax.Device] | None) -> Layout:
    """The layout of n rows over these devices (see `as_mesh`); None is `Local`."""
    return Local(n) if devices is None else Sharded(n, as_mesh(devices))


def as_mesh(devices: Any) -> Mesh:
    """A mesh: itself, of the first few devices (a number), of "all" devices, or of those in a list."""
    if isinstance(devices, Mesh):
        # With explicit axes every operation of a solver would have to name its sharding.
        return Mesh(devices.devices, devices.axis_names)
    there = jax.devices()
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f'devices must be a number, "all", a list of devices or a mesh, got {devices!r}.')
        return Mesh(np.array(there), (AXIS,))
    if isinstance(devices, int | np.integer):
        if not 1 <= devices <= len(there):
            raise ValueError(
                f"{devices} device(s) were asked for, but JAX sees {len(there)} ({there[0].platform}). For virtual "
                f"ones on a CPU, set XLA_FLAGS=--xla_force_host_platform_device_count={devices} before JAX is imported."
            )
        return Mesh(np.array(there[:devices]), (AXIS,))
    if not isinstance(devices, (list, tuple)) or not devices or not all(isinstance(d, jax.Device) for d in devices):
        raise ValueError(f'devices must be a number, "all", a list of JAX devices or a mesh, got {devices!r}.')
    return Mesh(np.array(list(devices)), (AXIS,))


def gather(array: Any) -> np.ndarray:
    """The whole array on this host. With many hosts, every process must call it."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable and not array.is_fully_replicated:
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
    return np.asarray(array)


def place_like(array: np.ndarray, like: Any) -> AnyArray:
    """An array with the placement of `like`. Rows of padding at the end are added or removed."""
    if not (isinstance(like, jax.Array) and isinstance(like.sharding, NamedSharding)):
        return jnp.asarray(array)
    if array.shape[:1] != like.shape[:1]:
        array = array[: like.shape[0]]
        array = np.pad(array, [(0, like.shape[0] - len(array)), *[(0, 0)] * (array.ndim - 1)])
    return jax.make_array_from_callback(array.shape, like.sharding, lambda index: array[index])


def agree(value: float) -> float:
    """The value of process 0 in every process: clocks differ, but all must decide alike."""
    if jax.process_count() == 1:
        return value
    return float(multihost_utils.broadcast_one_to_all(np.float64(value)))


def writes() -> bool:
    """Whether this process writes files: the first of many does."""
    return jax.process_index() == 0


@eqx.filter_jit
def replicate(layout: Layout, array: AnyArray, index: Indices | None = None) -> Any:
    """array[index], or all of it, on every device."""
    array = jnp.asarray(array)
    return layout.everywhere(array if index is None else array[index])


@eqx.filter_jit
def checksum(layout: Layout, array: AnyArray) -> UInt[Array, ""]:
    """The sum of bits * weight(row, column) modulo 2^64, which does not depend on the placement of rows.

    Sums of whole numbers do not depend on their order, and padding adds zero.
    """
    array = layout.data_only(jnp.asarray(array))
    kind = {1: jnp.uint8, 4: jnp.uint32, 8: jnp.uint64}[array.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(array, kind).astype(jnp.uint64)
    row, column = (jax.lax.broadcasted_iota(jnp.uint64, array.shape, axis) for axis in (0, 1))
    mixed = (row * jnp.uint64(0x9E3779B97F4A7C15) + column + jnp.uint64(1)) * jnp.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> 31)) * jnp.uint64(0x94D049BB133111EB)
    return jnp.sum(bits * (mixed ^ (mixed >> 29)))
