"""Functions of what each device has, and products whose data are spread over devices."""

from typing import Any

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from dualgp._types import Columns, Points
from dualgp.kernels import Kernel
from dualgp.operators.tiles import tiled_product
from dualgp.sharding import Layout

EVERYWHERE = PartitionSpec()


def on_devices(function: Any, layout: Layout, specs: Any, out: PartitionSpec) -> Any:
    """`function` of each device's share of its arguments."""
    # Sums over tiles start from zeros that are the same everywhere, which the check of varying values refuses.
    return jax.shard_map(function, mesh=layout.mesh, in_specs=specs, out_specs=out, check_vma=False)


def spread_product(
    kernel: Kernel, rows: Points, x: Points, v: Columns, layout: Layout, careful: bool = False
) -> Float[Array, "m s"]:
    """k(rows, x) @ v for x and v that are spread: tiles on each device, and an all-reduce of m x s numbers."""

    def part(kernel: Kernel, rows: Points, x: Points, v: Columns) -> Float[Array, "m s"]:
        return jax.lax.psum(tiled_product(kernel, rows, x, v, careful), layout.axes)

    specs = (EVERYWHERE, EVERYWHERE, layout.rows, layout.rows)
    return on_devices(part, layout, specs, EVERYWHERE)(kernel, rows, x, v)
