"""Products with kernel matrices that are never formed: sums over tiles of columns, one block of rows after another.

A row product needs O(n (d + s)) memory and one tile of K, whatever n is.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import full_precision
from dualgp._types import Columns, Indices, Points
from dualgp.kernels import Kernel
from dualgp.operators import policy


@full_precision
def tiled_product(kernel: Kernel, rows: Points, x: Points, v: Columns, careful: bool = False) -> Float[Array, "m s"]:
    """k(rows, x) @ v as a sum over tiles of columns of k(rows, x), differentiable in O(tile) memory."""
    block = kernel.against(rows, x, careful)

    @jax.checkpoint  # the backward pass computes a tile again rather than keeping all of them
    def term(x_tile: Points, v_tile: Columns) -> Float[Array, "m s"]:
        return block(x_tile) @ v_tile

    return sum_over_tiles(term, x, v, rows.shape[0])


def sum_over_tiles(term: Callable[[Points, Columns], Any], x: Points, v: Columns, rows: int) -> Any:
    """The sum of term(x_tile, v_tile), one array or several, over tiles sized for a block of K with this many rows.

    `term` is linear in v_tile. All tiles have the same size, so that one program is compiled.
    """
    n = x.shape[0]
    num = math.ceil(n / policy.tile_width(rows))
    if num <= 1:
        return term(x, v)
    tile = 16 * math.ceil(n / num / 16)

    def add(total: Any, i: Array) -> tuple[Any, None]:
        start = jnp.minimum(i * tile, n - tile)  # the last tile overlaps the one before;
        is_new = (start + jnp.arange(tile, dtype=jnp.int32) >= i * tile)[:, None]  # common rows count once
        x_tile, v_tile = (jax.lax.dynamic_slice_in_dim(array, start, tile) for array in (x, v))
        return jax.tree.map(jnp.add, total, term(x_tile, jnp.where(is_new, v_tile, 0.0))), None

    shapes = jax.eval_shape(term, x[:tile], v[:tile])
    total = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(add, total, jnp.arange(num, dtype=jnp.int32))[0]


def in_row_blocks(
    function: Callable[[Indices], Float[Array, "batch s"]], n: int, s: int, dtype: Any, size: int = policy.ROW_BLOCK
) -> Float[Array, "n s"]:
    """The (n, s) array whose rows are function(rows), filled in place one block of `size` rows after the other."""
    size = min(size, n)

    def fill(i: Array, whole: Array) -> Array:
        start = jnp.minimum(i * size, n - size)  # the last block overlaps the one before
        block = function(start + jnp.arange(size, dtype=jnp.int32))
        return jax.lax.dynamic_update_slice_in_dim(whole, block, start, axis=0)

    return jax.lax.fori_loop(0, math.ceil(n / size), fill, jnp.zeros((n, s), dtype))


def precision(x: Points) -> np.dtype:
    """The precision of computations with these inputs: their own, and float32 for bytes."""
    return np.result_type(x.dtype, np.float32)
