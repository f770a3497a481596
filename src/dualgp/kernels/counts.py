"""Sums of minima of counts, for all pairs of rows: every block of a kernel on counts needs them.

A fingerprint of 1,024 counts has some thirty that are not zero, and only those of one side matter:

    sum_c min(x_c, y_c)  =  sum over the columns c with x_c > 0  of  min(x_c, y_c)

So rows become short lists of columns and counts, and the other side is stored column by column. Each entry of a list
takes the minimum and the sum along a column, 32 bytes at a time in a register. On 2 cores, with 1,024 counts of real
molecules, that takes 3 ns an entry; the product of thermometer codes (min(x, y) = sum_t [x >= t][y >= t]) takes 100.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from dualgp._types import AnyArray

TOGETHER = 4  # entries of the lists in one step of the loop: 8 are as fast, and compile for twice as long
LARGEST_COUNT = 255
LARGEST_SUM = 65_535  # two bytes hold the sum of a row
WORD = 32


class Lists(NamedTuple):
    """The nonzero counts of each row, in parts of TOGETHER; `num_parts` are in use."""

    columns: Int[Array, "parts n together"]
    counts: UInt8[Array, "parts n together"]
    num_parts: Int[Array, ""]


def as_counts(x: Float[AnyArray, "n d"] | UInt8[AnyArray, "n d"]) -> UInt8[Array, "n d"]:
    """Whole numbers from 0 to 255 as bytes."""
    x = jnp.asarray(x)
    return x if x.dtype == jnp.uint8 else _rounded_down(x).astype(jnp.uint8)


@jax.custom_jvp
def _rounded_down(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return jnp.floor(x)


@_rounded_down.defjvp
def _no_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    raise TypeError(
        "A kernel on counts has no derivative in its inputs: molecules are discrete. "
        "Compare candidates by their values."
    )


def row_sums(x: UInt8[AnyArray, "n d"]) -> Int[Array, " n"]:
    """The sum of each row's counts."""
    return jnp.sum(x, axis=1, dtype=jnp.int32)


def sums_of_minima(x1: UInt8[AnyArray, "n1 d"]) -> Callable[[UInt8[AnyArray, "n2 d"]], Int[Array, "n1 n2"]]:
    """A function from other rows to sum_c min(x1[i, c], x2[j, c]); work on x1 alone is done once."""
    lists = as_lists(x1)
    # A sum of minima is at most the row's own sum, so that most fit a byte: twice as many at a time.
    fits = jnp.max(row_sums(x1), initial=0) <= LARGEST_COUNT

    return lambda x2: _block(lists, fits, x2)


# Pairs of sets one after the other: a vectorised loop would give all of them lists as long as the longest and sums in
# two bytes, and take nine times as long.
@jax.custom_batching.sequential_vmap
def minima_of_pairs(x1: UInt8[AnyArray, "n1 d"], x2: UInt8[AnyArray, "n2 d"]) -> Int[Array, "n1 n2"]:
    """sum_c min(x1[i, c], x2[j, c]) from lists of the shorter side."""
    return sums_of_minima(x2)(x1).T if x1.shape[0] > x2.shape[0] else sums_of_minima(x1)(x2)


# Compiled here, because otherwise these loops would be compiled at every call from Python.
@jax.jit
def _block(lists: Lists, fits: Array, x2: UInt8[AnyArray, "n2 d"]) -> Int[Array, "n1 n2"]:
    by_column = jnp.asarray(x2).T
    in_one, in_two = (lambda dtype=dtype: _add_up(lists, by_column, dtype) for dtype in (jnp.uint8, jnp.uint16))
    return jax.lax.cond(fits, in_one, in_two)


def _add_up(lists: Lists, by_column: UInt8[Array, "d n2"], dtype: type) -> Int[Array, "n1 n2"]:
    def add(part: Array, total: Array) -> Array:
        for i in range(TOGETHER):
            runs = by_column.at[lists.columns[part, :, i]].get(mode="promise_in_bounds")
            total = total + jnp.minimum(lists.counts[part, :, i, None], runs).astype(dtype)
        return total

    nothing = jnp.zeros((lists.columns.shape[1], by_column.shape[1]), dtype)
    return jax.lax.fori_loop(0, lists.num_parts, add, nothing).astype(jnp.int32)


@jax.jit
def as_lists(x: UInt8[AnyArray, "n d"]) -> Lists:
    """The nonzero counts of each row and their columns, in order; the rest of a list is zeros.

    The k-th count is found in two steps: running sums of nonzero counts give its word of 32 columns, then its column in
    the word. (Sorting each row takes eight times as long.)
    """
    x = jnp.asarray(x)
    n, d = x.shape
    num_words = -(-d // WORD)
    is_set = jnp.pad(x > 0, ((0, 0), (0, num_words * WORD - d))).reshape(n, num_words, WORD)
    in_word = _running_sum(is_set)
    ones = in_word[:, :, -1]
    up_to = _running_sum(ones)

    def fill(part: Array, lists: tuple[Array, Array]) -> tuple[Array, Array]:
        k = (part * TOGETHER + jnp.arange(TOGETHER)).astype(jnp.float32)
        word = jnp.minimum(jnp.sum(up_to[:, None, :] <= k[:, None], axis=2, dtype=jnp.int32), num_words - 1)
        rank = k - jnp.take_along_axis(up_to - ones, word, axis=1)
        places = jnp.take_along_axis(in_word, word[:, :, None], axis=1)
        place = jnp.sum(places <= rank[:, :, None], axis=2, dtype=jnp.int32)
        column = jnp.minimum(word * WORD + place, d - 1)
        count = jnp.where(k < up_to[:, -1:], jnp.take_along_axis(x, column, axis=1), jnp.uint8(0))
        return lists[0].at[part].set(column), lists[1].at[part].set(count)

    num_parts = jnp.ceil(jnp.max(up_to[:, -1], initial=0.0) / TOGETHER).astype(jnp.int32)
    empty = jnp.zeros((-(-d // TOGETHER), n, TOGETHER), jnp.int32)
    columns, counts = jax.lax.fori_loop(0, num_parts, fill, (empty, empty.astype(jnp.uint8)))
    return Lists(columns, counts, num_parts)


def _running_sum(values: Array) -> Float[Array, "..."]:
    """Cumulative sums along the last axis by a matrix product: exact for whole numbers, and quick to compile."""
    num = values.shape[-1]
    return values.astype(jnp.float32) @ jnp.asarray(np.triu(np.ones((num, num), np.float32)))
