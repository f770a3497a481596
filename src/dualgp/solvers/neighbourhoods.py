"""Random partitions of the data into groups of neighbours."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dualgp._types import AnyArray, RandomKey


def neighbourhoods(coordinates: Float[AnyArray, "n c"], size: int, key: RandomKey) -> Int[Array, " n"]:
    """An order of the n points in which every `size` consecutive ones, from 0 on, are near each other.

    A random projection tree: all points are cut in two at the median of a random direction, then each half, and so on.
    Other directions cut elsewhere, so that two neighbours are parted by few of the trees.
    """
    n, c = coordinates.shape
    num_groups = -(-n // size)
    num_levels = (num_groups - 1).bit_length()
    group = jnp.arange(n, dtype=jnp.int64) // size
    directions = jax.random.uniform(key, (max(num_levels, 1), c), coordinates.dtype, -1.0, 1.0)

    def cut(level: Array, order: Int[Array, " n"]) -> Int[Array, " n"]:
        # A cell of this level is a range of whole groups; sorting inside cells makes the next level's cells its halves.
        cell = (group << level) // num_groups
        return order[jnp.lexsort(((coordinates @ directions[level])[order], cell))]

    return jax.lax.fori_loop(0, num_levels, cut, jnp.arange(n, dtype=jnp.int32))
