"""k(points, x) @ weights, and evaluation of functions at many points, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled, in_wide, is_traced, on_device
from dualgp._types import AnyArray, Columns, Points
from dualgp.kernels import Kernel
from dualgp.operators import policy
from dualgp.operators.layout import EVERYWHERE, Layout, Local
from dualgp.operators.tiles import precision, tiled_product

Function = Callable[[Points], Columns]


class CrossProduct(eqx.Module):
    """k(points, x) @ weights, streamed over the rows: (m, d) -> (m, s). Made by `KernelOperator.cross`.

    This one function certifies residuals and predicts means, so that a certificate holds for the predictions. It always
    computes distances by differences: in float32, matrix products have an error of eps times the squared norms, which
    makes a point near a row equal to that row.
    """

    kernel: Kernel
    x: Points
    weights: Columns
    layout: Layout = eqx.field(static=True)

    def __call__(self, points: Points) -> Float[Array, "m s"]:
        if not self.x.shape[0]:
            return jnp.zeros((points.shape[0], self.weights.shape[1]), np.result_type(points.dtype, np.float32))
        data = self.x if self.x.dtype == jnp.uint8 else jnp.asarray(self.x, points.dtype)  # bytes stay bytes
        weights = jnp.asarray(self.weights, points.dtype)

        def shard(kernel: Kernel, points: Points, x: Points, weights: Columns) -> Float[Array, "m s"]:
            return self.layout.sum_shards(tiled_product(kernel, points, x, weights, careful=True))

        rows = self.layout.rows
        specs = (EVERYWHERE, EVERYWHERE, rows, rows)
        return self.layout.map_shards(shard, specs, EVERYWHERE)(self.kernel, points, data, weights)

    def padded(self, num: int) -> CrossProduct:
        """The same function of `num` rows, those that are added without weight: few sizes need few programs."""
        more = num - self.x.shape[0]
        if not more or not isinstance(self.layout, Local):
            return self
        x = np.pad(np.asarray(self.x), ((0, more), (0, 0)), "edge")  # real points, as distances are centred on them
        weights = np.pad(np.asarray(self.weights), ((0, more), (0, 0)))
        return CrossProduct(self.kernel, on_device(x, x.dtype), on_device(weights, weights.dtype), Local(num))

    def gathered(self) -> CrossProduct:
        """The same function with all rows in the memory of one host. With many hosts, every process must call it."""
        if isinstance(self.layout, Local):
            return self
        x, weights = (jnp.asarray(self.layout.collect(array)) for array in (self.x, self.weights))
        return CrossProduct(self.kernel, x, weights, Local(self.layout.n))


def evaluate(function: Function, x: Any, data: Points, kernel: Kernel) -> AnyArray:
    """`function` at points, in the precision of the data."""
    blocks = [values for _, (values,) in evaluate_blocks((function,), x, data, kernel)]
    return blocks[0] if is_traced(blocks[0]) else np.concatenate(blocks)


def evaluate_blocks(
    functions: tuple[Function, ...], x: Any, data: Points, kernel: Kernel
) -> Iterator[tuple[AnyArray, tuple[AnyArray, ...]]]:
    """Blocks of points with the values of several functions there; traced points are a single block.

    Blocks have few different shapes, so that few programs are compiled.
    """
    points = kernel.points(x, "x", data.shape[1])
    if is_traced(points, functions):
        yield points, tuple(function(points) for function in functions)
        return
    functions = tuple(_few_sizes(function) for function in functions)
    m, dtype = points.shape[0], precision(data)
    size = min(policy.POINT_BLOCK, max(16, 1 << max(m - 1, 0).bit_length()))
    for start in range(0, max(m, 1), size):  # an empty set of points is one empty block
        block = points[start : start + size]
        yield block, tuple(_evaluate_block(function, block, size, dtype) for function in functions)


@in_wide
def _few_sizes(function: Function) -> Function:
    return function.padded(policy.padded(len(function.x))) if isinstance(function, CrossProduct) else function


@in_wide
def _evaluate_block(function: Function, points: AnyArray, size: int, dtype: Any) -> np.ndarray:
    points, m = np.asarray(points), points.shape[0]
    # Padded with real points: zeros could lie far away, and distances are centred on what is evaluated.
    with np.errstate(over="ignore"):  # callers check for infinities
        points = points.astype(dtype)
    padded = np.resize(points, (size, points.shape[1])) if m else np.zeros((size, points.shape[1]), dtype)
    return np.asarray(_call(function, padded))[:m]


@compiled
def _call(function: Function, x: Points) -> Columns:
    return function(x)
