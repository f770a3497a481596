"""Where rows live: arrays of n rows spread over the devices of a mesh, and over the processes that own the devices.

JAX wants equal shares, so an array has up to one row for each device more than there are data. Padding is zero in all
columns that a solver sees, and no random number depends on it: an answer does not depend on the number of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, UInt

from dualgp._types import AnyArray

AXIS = "rows"


def as_mesh(devices: Mesh | int | str | Sequence[jax.Device]) -> Mesh:
    """A mesh of these devices: a mesh itself, a number of the devices there are, "all" of them, or a list."""
    if isinstance(devices, Mesh):
        # A mesh with explicit axes would want every operation of a solver to name its sharding.
        return Mesh(devices.devices, devices.axis_names)
    there = jax.devices()
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f'devices must be a number, "all", a list of devices or a mesh, got {devices!r}.')
        return Mesh(np.array(there), (AXIS,))
    if isinstance(devices, (int, np.integer)) and not isinstance(devices, bool):
        if not 1 <= devices <= len(there):
            raise ValueError(
                f"{devices} device(s) were asked for, but JAX sees {len(there)} ({there[0].platform}). For virtual "
                f"ones on a CPU, set XLA_FLAGS=--xla_force_host_platform_device_count={devices} before JAX is imported."
            )
        return Mesh(np.array(there[:devices]), (AXIS,))
    return Mesh(np.array(list(devices)), (AXIS,))


@dataclass(frozen=True)
class Layout:
    """n rows over the devices of a mesh, in order: each holds `height / devices` of them, the last ones less."""

    n: int
    mesh: Mesh

    @property
    def num_devices(self) -> int:
        """How many devices share the rows."""
        return self.mesh.size

    @property
    def share(self) -> int:
        """Rows of an array on each device."""
        return -(-self.n // self.num_devices)

    @property
    def height(self) -> int:
        """Rows of an array with its padding."""
        return self.share * self.num_devices

    @property
    def axes(self) -> tuple[str, ...]:
        """The names that collectives are given."""
        return self.mesh.axis_names

    @property
    def rows(self) -> PartitionSpec:
        """How an array of `height` rows is cut."""
        return PartitionSpec(self.axes)

    @property
    def sharding(self) -> NamedSharding:
        """The same with its mesh."""
        return NamedSharding(self.mesh, self.rows)

    @cached_property
    def own(self) -> slice:
        """The rows of data that this process holds."""
        cuts = sorted(index[0].indices(self.height)[:2] for index in self._shards().values())
        if any(stop != start for (_, stop), (start, _) in pairwise(cuts)):
            raise ValueError("The devices of a process must be neighbours in the mesh. Make it of jax.devices().")
        return slice(min(cuts[0][0], self.n), min(cuts[-1][1], self.n))

    def place(self, own: AnyArray, filler: AnyArray | float = 0.0) -> Float[Array, "height columns"]:
        """The spread array, from this process's own rows; `filler` is what padding is filled with."""
        own, first = np.asarray(own), self.own.start

        def shard(index: tuple[slice, ...]) -> np.ndarray:
            start, stop, _ = index[0].indices(self.height)
            part = own[max(start - first, 0) : max(stop - first, 0)]
            if len(part) == stop - start:
                return part
            whole = np.empty((stop - start, own.shape[1]), own.dtype)
            whole[:], whole[: len(part)] = filler, part
            return whole

        return jax.make_array_from_callback((self.height, own.shape[1]), self.sharding, shard)

    def place_whole(self, array: AnyArray) -> Float[Array, "height columns"]:
        """The spread array, from all n rows (a memory map will do: only this process's rows are read)."""
        return self.place(np.asarray(array[self.own]))

    def settle(self, array: Any) -> Any:
        """An array of this process alone (the same in all of them), on every device; others as they are."""
        if not isinstance(array, jax.Array) or isinstance(array.sharding, NamedSharding):
            return array
        values, everywhere = np.asarray(array), NamedSharding(self.mesh, PartitionSpec())
        return jax.make_array_from_callback(values.shape, everywhere, lambda index: values[index])

    def holds(self, array: Any) -> bool:
        """Whether an array is spread like this."""
        return (
            isinstance(array, jax.Array)
            and array.shape[:1] == (self.height,)
            and array.sharding.is_equivalent_to(self.sharding, array.ndim)
        )

    def collect(self, array: AnyArray) -> np.ndarray:
        """All n rows on this host. On many hosts each of them must ask, and each gets them."""
        return gather(array)[: self.n]

    def is_data(self) -> Array:
        """(height, 1): whether a row is one of the data. Inside `jax.jit`."""
        return (jnp.arange(self.height, dtype=jnp.int32) < self.n)[:, None]

    def _shards(self) -> Any:
        return self.sharding.addressable_devices_indices_map((self.height, 1))


def gather(array: Any) -> np.ndarray:
    """The whole array on this host. If it is spread over many, each of them must ask."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable and not array.is_fully_replicated:
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
    return np.asarray(array)


def place_like(array: np.ndarray, like: Any) -> AnyArray:
    """An array where `like` is. Padding may differ: rows of zeros are added at the end, or taken off."""
    if not (isinstance(like, jax.Array) and isinstance(like.sharding, NamedSharding)):
        return jnp.asarray(array)
    if array.shape[:1] != like.shape[:1]:
        array = array[: like.shape[0]]
        array = np.pad(array, [(0, like.shape[0] - len(array)), *[(0, 0)] * (array.ndim - 1)])
    return jax.make_array_from_callback(array.shape, like.sharding, lambda index: array[index])


def agreed(value: float) -> float:
    """Process 0's value, in every process: clocks differ, decisions must not."""
    if jax.process_count() == 1:
        return value
    return float(multihost_utils.broadcast_one_to_all(np.float64(value)))


def writes() -> bool:
    """Whether it is for this process to write files: of many, the first."""
    return jax.process_index() == 0


@jax.jit
def checksum(array: AnyArray) -> UInt[Array, ""]:
    """A number that is the same however the rows are spread: sum of bits * weight(row, column) modulo 2^64.

    Sums of whole numbers do not depend on their order, and padding of zeros adds nothing.
    """
    kind = {4: jnp.uint32, 8: jnp.uint64}[array.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(array, kind).astype(jnp.uint64)
    row, column = (jax.lax.broadcasted_iota(jnp.uint64, array.shape, axis) for axis in (0, 1))
    mixed = (row * jnp.uint64(0x9E3779B97F4A7C15) + column + jnp.uint64(1)) * jnp.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> 31)) * jnp.uint64(0x94D049BB133111EB)
    return jnp.sum(bits * (mixed ^ (mixed >> 29)))
