"""Posterior functions, which can be evaluated anywhere and differentiated.

f(x)  =  mean  +  phi(x) @ w  +  k(x, X) @ weights  +  u @ r_N
         -------- prior path     ----------------- update path: far field, and near field where it has not converged
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_parameter, full_precision, is_traced, wide
from dualgp._checks import check_values
from dualgp._types import AnyArray, Columns, Points
from dualgp.operators.cross import CrossProduct, evaluate_blocks
from dualgp.operators.tiles import sum_over_tiles
from dualgp.posterior.near import NearField
from dualgp.posterior.prior import PriorPaths


class SamplePaths(eqx.Module):
    """Posterior functions: `f(x)` has shape (s, m) for m points, `f[i]` is a single one, `len(f)` their number.

    With k outputs the shape is (s, m, k); columns of weights are then ordered by function, then by output.

    Concrete inputs give NumPy arrays, computed in blocks of points. Inside `jax.jit`, `jax.grad` or `jax.vmap` it is a
    JAX function in the caller's precision.
    """

    mean: AnyArray
    prior: PriorPaths
    update: CrossProduct
    near: NearField | None = None
    num_outputs: int = eqx.field(static=True, default=1)

    def __call__(self, x: Any) -> Float[AnyArray, "s m *k"]:
        blocks = evaluate_blocks((self.prior, self.update), x, self.update.x, self.update.kernel)
        mean = self.mean if not self.mean.ndim else (jnp if is_traced(self.mean) else np).tile(self.mean, len(self))
        values = [
            mean.astype(update.dtype) + prior + update + self._correction(points, update.dtype)
            for points, (prior, update) in blocks
        ]
        joined = values[0] if len(values) == 1 else np.concatenate(values)
        check_values(joined, x)
        if self.num_outputs == 1:
            return joined.T
        return joined.reshape(len(joined), len(self), self.num_outputs).swapaxes(0, 1)

    def _correction(self, points: AnyArray, dtype: Any) -> Any:
        return np.zeros((), dtype) if self.near is None else self.near(points).correction.astype(dtype)

    @full_precision
    def each(self, x: Float[AnyArray, "s q d"]) -> tuple[Float[Array, "s q"], Float[Array, "s q d"]]:
        """Values and gradients of each function at q points of its own: s q n kernel entries.

        For use inside `jax.jit`. Values and gradients are summed tile by tile, so that nothing is computed twice.
        """
        s, q, d = x.shape

        def prior(points: Float[Array, "s q d"]) -> Float[Array, "s q"]:
            features = self.prior.features(points.reshape(s * q, d)).reshape(s, q, -1)
            return jnp.einsum("sqf,fs->sq", features, jnp.asarray(self.prior.weights, x.dtype))

        def update(points: Float[Array, "s q d"], x_tile: Points, w_tile: Columns) -> Float[Array, "s q"]:
            block = self.update.kernel.against(points.reshape(s * q, d), data, careful=True)(x_tile).reshape(s, q, -1)
            return jnp.einsum("sqt,ts->sq", block, w_tile)

        def with_gradient(function: Callable, *more: AnyArray) -> tuple[Float[Array, "s q"], Float[Array, "s q d"]]:
            # A value depends on its own point alone, so that one pullback gives all gradients.
            values, pullback = jax.vjp(lambda points: function(points, *more), x)
            return values, pullback(jnp.ones_like(values))[0]

        data, weights = jnp.asarray(self.update.x, x.dtype), jnp.asarray(self.update.weights, x.dtype)
        terms = [with_gradient(prior)]
        if len(data):
            terms.append(sum_over_tiles(lambda *tile: with_gradient(update, *tile), data, weights, s * q))
        if self.near is not None:
            terms.append(with_gradient(self.near.correct_each))
        values, gradients = jax.tree.map(lambda *parts: sum(parts), *terms)
        return self.mean.astype(x.dtype) + values, gradients

    def __neg__(self) -> SamplePaths:
        """The functions times -1: `maximise(-f, ...)` finds minima."""
        return replace(self._combine(lambda columns: -columns), mean=as_parameter(-self.mean))

    def average(self) -> SamplePaths:
        """The average of all functions, as one function."""
        k = self.num_outputs
        return self._combine(lambda columns: columns.reshape(len(columns), -1, k).mean(axis=1))

    def _combine(self, linear: Callable[[Columns], Columns]) -> SamplePaths:
        """Linear combinations of the functions."""
        where = lambda paths: (paths.prior.weights, paths.update.weights)  # noqa: E731
        with wide():
            near = None if self.near is None else self.near.map_columns(linear)
            return replace(eqx.tree_at(where, self, tuple(linear(columns) for columns in where(self))), near=near)

    def __repr__(self) -> str:
        return f"SamplePaths({len(self)} functions of {self.update.x.shape[1]} inputs)"

    def __len__(self) -> int:
        return self.update.weights.shape[1] // self.num_outputs

    def __getitem__(self, index: int | slice) -> SamplePaths:
        if isinstance(index, (int, np.integer)):
            if not -len(self) <= index < len(self):
                raise IndexError(f"There are {len(self)} functions, got index {index}.")
            index = slice(index % len(self), index % len(self) + 1)
        columns = np.arange(len(self) * self.num_outputs).reshape(len(self), -1)[index].ravel()
        return self._combine(lambda every: every[:, columns])

    # Equality is identity, so that `jax.jit(f)` works: arrays have no hash.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)
