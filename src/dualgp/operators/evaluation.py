"""Functions of points at many of them, outside of any `jax.jit`: in blocks of one shape, so that little is compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled, in_wide, is_traced
from dualgp._types import AnyArray, Columns, Points
from dualgp.kernels import Kernel
from dualgp.operators.spread import spread_product
from dualgp.operators.tiles import precision, tiled_product
from dualgp.sharding import Layout

TEST_BLOCK = 1024  # points at once

Function = Callable[[Points], Columns]


class CrossProduct(eqx.Module):
    """k(points, x) @ weights, streamed over the data: (m, d) -> (m, s).

    Residuals are checked and means are predicted by this one function, so that the program for it is compiled once.
    """

    kernel: Kernel
    x: Points
    weights: Columns
    layout: Layout | None = eqx.field(default=None, static=True)  # where x and weights are spread over devices
    careful: bool = eqx.field(default=False, static=True)

    def __call__(self, points: Points) -> Float[Array, "m s"]:
        data = self.x if self.x.dtype == jnp.uint8 else jnp.asarray(self.x, points.dtype)  # bytes stay bytes
        weights = jnp.asarray(self.weights, points.dtype)
        if self.layout is not None:
            return spread_product(self.kernel, points, data, weights, self.layout, self.careful)
        return tiled_product(self.kernel, points, data, weights, self.careful)


def evaluate(function: Function, x: Any, data: Points, kernel: Kernel) -> AnyArray:
    """`function` at points, in the precision of the data."""
    blocks = [values for (values,) in evaluate_blocks((function,), x, data, kernel)]
    return blocks[0] if is_traced(blocks[0]) else np.concatenate(blocks)


def evaluate_blocks(
    functions: tuple[Function, ...], x: Any, data: Points, kernel: Kernel
) -> Iterator[tuple[AnyArray, ...]]:
    """The values of several functions at one block of points after the other; traced points are one block."""
    points = kernel.points(x, "x", data.shape[1])
    if is_traced(points, functions):
        yield tuple(function(points) for function in functions)
        return
    m, dtype = points.shape[0], precision(data)
    size = min(TEST_BLOCK, max(16, 1 << max(m - 1, 0).bit_length()))
    for start in range(0, max(m, 1), size):  # an empty set of points is one empty block
        block = points[start : start + size]
        yield tuple(_evaluate_block(function, block, size, dtype) for function in functions)


@in_wide
def _evaluate_block(function: Function, points: np.ndarray, size: int, dtype: Any) -> np.ndarray:
    m = points.shape[0]
    # Padded with real points: zeros could lie far away, and distances are centred on what is evaluated.
    padded = np.resize(points.astype(dtype), (size, points.shape[1])) if m else np.zeros((size, points.shape[1]), dtype)
    return np.asarray(_call(function, padded))[:m]


@compiled
def _call(function: Function, x: Points) -> Columns:
    return function(x)
