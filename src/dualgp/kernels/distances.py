"""Squared distances of points, by differences in few dimensions and by a matrix product in many; and 1-norm distances.

||a||^2 + ||b||^2 - 2 a.b subtracts numbers of the size of ||a||^2 to get a small one: its error is about eps * ||a||^2
for *every* pair. Centring keeps ||a|| small, and in many dimensions distances are of the size of the norms. In few
dimensions (maps, time) lengthscales of a hundredth of the range are common, and distances of near points would be all
error. The sum of squared differences has a relative error of eps, and up to eight dimensions it takes less time: 512
rows of n = 50,000 on two cores, one column, 11 ms (d = 3); 17 as with the product (d = 9); 24 instead of 20 (d = 26).

`careful` asks for differences in any number of dimensions, as equations with hardly any noise do: on bike (d = 17,
noise 4e-5) block descent takes 5.9 passes to a residual of 1e-2, and 8.4 with matrix products.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

from dualgp._arrays import full_precision
from dualgp._types import AnyArray, Points

_DIFFERENCES_UP_TO = 8  # dimensions
_AT_ONCE = 8  # dimensions in one loop over all pairs: with 16 it takes 1.5 times as long


def squared_distances(a: Points, b: Points) -> Float[Array, "n1 n2"]:
    """||a_i - b_j||^2 for all pairs; exactly zero for equal rows, and with a finite gradient everywhere."""
    return distances_from(a, b)(b)


def distances_from(a: Points, b: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
    """The function from some rows of `b` to their squared distances from `a`.

    The range and the centre of `b` are found once: found for every tile of 1,024 rows they took longer than the tile
    itself (n = 50,000, d = 9, 512 rows, one column: 35 ms instead of 16).
    """
    if careful or a.shape[1] <= _DIFFERENCES_UP_TO:
        return lambda tile: _by_differences(a, tile)
    # For the centre, `a` is clipped to the range of `b`: one row of -9999 must not cost all others their digits.
    lower, upper = jnp.min(b, axis=0, initial=jnp.inf), jnp.max(b, axis=0, initial=-jnp.inf)
    centre = jax.lax.stop_gradient(jnp.mean(a if a is b else jnp.clip(a, lower, upper), axis=0))
    a = a - centre
    norms_a = _norms(a)[:, None]

    @full_precision
    def squared_to(tile: Points) -> Float[Array, "n1 tile"]:
        tile = tile - centre
        norms = norms_a + _norms(tile)[None, :]
        squared = norms - 2.0 * a @ tile.T
        # A distance below the rounding error of the formula becomes zero, so that duplicates have distance zero.
        noise_floor = 8.0 * jnp.finfo(a.dtype).eps * norms
        return _zero_below(squared, noise_floor)

    return squared_to


def _by_differences(a: Points, b: Points) -> Float[Array, "n1 n2"]:
    """sum_k (a_ik - b_jk)^2."""
    return sum_over_inputs(_square, ((a, b),))


def absolute_distances(a: Points, b: Points) -> Float[Array, "n1 n2"]:
    """sum_k |a_ik - b_jk|, with gradient 0 where the two are equal in an input."""
    return sum_over_inputs(_absolute, ((a, b),))


def _square(of_a: Array, of_b: Array) -> Array:
    return (of_a - of_b) ** 2


def _absolute(of_a: Array, of_b: Array) -> Array:
    return jnp.abs(of_a - of_b)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def sum_over_inputs(term: Callable[..., Array], pairs: tuple[tuple[AnyArray, AnyArray], ...]) -> Float[Array, "n1 n2"]:
    """sum_k term(a_ik, b_jk, ...) for all i and j, over one or more pairs (a, b) of sets of points.

    Inputs are summed one after the other, in forward and backward passes, so that (d, n1, n2) numbers never exist. A
    pair of sets with one point each holds constants of each input.
    """
    (a, b), d = pairs[0], pairs[0][0].shape[1]
    take = jax.lax.dynamic_index_in_dim
    # Each coordinate must be contiguous in memory, or the loop over all pairs is not vectorised: nine times the time.
    in_rows = lambda points: with_layout_constraint(jnp.asarray(points).T, Layout(major_to_minor=(0, 1)))  # noqa: E731
    sides = [side for left, right in pairs for side in ((1, left), (0, in_rows(right)))]

    @partial(jax.checkpoint, static_argnums=(2,))  # a backward pass computes differences again
    def add(total: Array, first: Any, num: int) -> Array:
        for k in range(num):
            total = total + term(*(take(array, first + k, axis) for axis, array in sides))
        return total

    few = d % _AT_ONCE
    total = add(jnp.zeros((a.shape[0], b.shape[0]), jnp.result_type(a, b)), 0, few)
    return jax.lax.fori_loop(0, d // _AT_ONCE, lambda i, total: add(total, few + i * _AT_ONCE, _AT_ONCE), total)


@sum_over_inputs.defjvp
def _sum_over_inputs_jvp(term: Callable[..., Array], primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """The sum of the terms' derivatives, by differences too: matrix products would cancel where points are near."""

    def change(*sides: Array) -> Array:
        num = len(sides) // 2
        return jax.jvp(term, sides[:num], sides[num:])[1]

    return sum_over_inputs(term, *primals), sum_over_inputs(change, primals[0] + tangents[0])


def _norms(a: Points) -> Float[Array, " n"]:
    return jnp.sum(a * a, axis=1)


@jax.custom_jvp
def _zero_below(squared: Float[Array, "n1 n2"], floor: Float[Array, "n1 _"]) -> Float[Array, "n1 n2"]:
    """0 instead of a number below `floor`, with the derivatives of the number, so that second derivatives exist."""
    return jnp.where(squared > floor, squared, 0.0)


@_zero_below.defjvp
def _zero_below_jvp(primals: tuple, tangents: tuple) -> tuple[Float[Array, "n1 n2"], Float[Array, "n1 n2"]]:
    return _zero_below(*primals), tangents[0]


@jax.custom_jvp
def safe_sqrt(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root, with gradient 0 instead of infinity at 0."""
    return jnp.sqrt(squared)


@safe_sqrt.defjvp
def _safe_sqrt_jvp(
    primals: tuple[Float[Array, "..."]], tangents: tuple[Float[Array, "..."]]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    root, positive = safe_sqrt(primals[0]), primals[0] > 0
    return root, jnp.where(positive, 0.5 * tangents[0] / jnp.where(positive, root, 1.0), 0.0)
