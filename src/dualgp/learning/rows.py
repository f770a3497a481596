"""The rows of a likelihood: those with equal inputs are merged, and the noise of each is a function of the model's.

    variance_i  =  added_i + scale_i * noise

where `added` are known variances, or `scale` factors such as 1 / weight. Merged rows have smaller values of both. The
likelihood of a group has a further term beside that of its mean,

    log p(y | f) - log p(mean | f)  =  -1/2 [repeats * log(2 pi v) + spread / v]  +  constant,     v = within + noise

A copy of a record is not a second measurement of it: it would imply zero noise. Rows that were entered twice are left
out; if many rows are copies, they count as often as they occur, without the further term.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dualgp._arrays import is_traced
from dualgp._checks import as_columns
from dualgp._types import AnyArray
from dualgp.operators.merging import entered_twice, is_copy, merge_rows, num_repeats
from dualgp.operators.noise import check_noises

NoiseRole = Literal["added", "factor"]


class RowNoise(NamedTuple):
    """The numbers of the formulas above, for some rows."""

    added: Float[AnyArray, "*rows"]
    scale: Float[AnyArray, "*rows"]
    within: Float[AnyArray, "*rows"]
    repeats: Float[AnyArray, "*rows"]
    spread: Float[AnyArray, "*rows"]

    def variance(self, noise: Any) -> Any:
        """The variance of each row."""
        return self.added + self.scale * noise

    def log_repeats(self, noise: Any) -> Any:
        """The further term of merged rows, up to a constant."""
        numpy: Any = jnp if is_traced(noise, self) or isinstance(noise, Array) else np
        variance = self.within + noise
        return -0.5 * numpy.sum(self.repeats * numpy.log(2 * math.pi * variance) + self.spread / variance)

    def take(self, index: Int[np.ndarray, "*some"], mask: Bool[np.ndarray, "*some"] | None = None) -> RowNoise:
        """The noise of some rows; masked rows have no further term."""
        there: Any = 1.0 if mask is None else mask
        chosen = RowNoise(*(array[index] for array in self))
        return chosen._replace(repeats=chosen.repeats * there, spread=chosen.spread * there)

    def last(self, num: int) -> RowNoise:
        """The noise of the last rows."""
        return RowNoise(*(array[-num:] for array in self))


class Rows(NamedTuple):
    """Inputs, targets of k outputs, and noise: None for the model's in every row."""

    x: np.ndarray
    y: Float[np.ndarray, "n k"]
    terms: RowNoise | None = None

    @property
    def usual_factor(self) -> float:
        """The geometric mean of the factors of the noise."""
        return 1.0 if self.terms is None else float(np.exp(np.mean(np.log(np.asarray(self.terms.scale)))))

    @property
    def y_variance(self) -> float:
        """The variance of the targets before merging, averaged over outputs; rows are weighted by their precision."""
        if self.terms is None:
            return float(np.mean(np.var(self.y, axis=0)))
        weights = 1.0 / np.asarray(self.terms.scale)
        within = float(np.sum(self.terms.spread)) / self.y.shape[1]
        between = np.mean((self.y - np.average(self.y, axis=0, weights=weights)) ** 2, axis=1)
        return float((np.sum(weights * between) + within) / weights.sum())

    def variances(self, noise: Any) -> Float[np.ndarray, " n"] | None:
        """The variance of each row, if it is not the model's."""
        return None if self.terms is None else np.asarray(self.terms.variance(np.asarray(noise, np.float64)))


def as_rows(x: np.ndarray, y: np.ndarray, noise: Any, role: NoiseRole) -> Rows:
    """The rows before merging; `noise`: variances to which the model's noise is added, or factors of it."""
    n = len(y)
    y = as_columns(y)
    if role not in ("added", "factor"):
        raise ValueError(f'noise_role must be "added" or "factor", got {role!r}.')
    if noise is None:
        return Rows(x, y)
    given, none, one = check_noises(noise, n, may_be_zero=role == "added"), np.zeros(n), np.ones(n)
    added, scale, within = (given, one, given) if role == "added" else (none, given, none)
    return Rows(x, y, RowNoise(added, scale, within, none, none))


def merge(rows: Rows) -> Rows:
    """The rows with equal inputs merged."""
    if not num_repeats(rows.x):
        return rows
    copies = entered_twice(rows.x.T, rows.y)
    if copies.any():
        kept = np.flatnonzero(~copies)
        rows = Rows(rows.x[kept], rows.y[kept], None if rows.terms is None else rows.terms.take(kept))
    are_repeats = not is_copy(rows.x.T, rows.y).any()
    terms, n = rows.terms, len(rows.y)
    added = np.zeros(n) if terms is None else terms.added
    # If known variances are added to the noise, rows are merged only if these are equal, too.
    x = rows.x if not added.any() else np.column_stack([np.asarray(rows.x, np.float64), added])
    merged = merge_rows(x, rows.y, None if terms is None else np.asarray(terms.scale))
    within, repeats, k = added[merged.first], (merged.repeats * rows.y.shape[1]).astype(float), merged.repeats + 1
    if not are_repeats:  # but copies, which have no spread
        repeats = np.where(merged.spread > 0, repeats, 0.0)
    found = RowNoise(within / k, merged.scale, within, repeats, merged.spread)
    return Rows(rows.x[merged.first], merged.y, found)
