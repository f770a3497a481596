"""Rows kept aside: their predictions decide when another pass is no longer worth it.

A row i without a weight is predicted by the far field and by its neighbours N, without itself. With the
residual r = b - A w, the error of that prediction is

    e_i = r_i - u @ r_N,      u = A_NN^-1 K_Ni

for the column of the mean. The columns of the samples give its standard deviation, noise included. u depends on the
inputs alone and is computed once, so that a score takes a few sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from dualgp._random import generator
from dualgp._types import Columns, RandomKey
from dualgp.operators import KernelOperator
from dualgp.operators.nearest import NearestRows, neighbour_weights
from dualgp.operators.policy import (
    FAR_ALL_UP_TO,
    LEAST_GAIN,
    LEAST_RATIO,
    MOST_DEVIATIONS,
    ROWS_ASIDE,
    ROWS_ASIDE_OF_MANY,
)
from dualgp.operators.variance import combine_variances

Z_90 = 1.6448536269514722  # standard deviations from the mean to either end of the central 90 %
SURE = 2.0  # standard errors that make a difference significant
Read = Callable[[Columns, Int[np.ndarray, " rows"]], np.ndarray]  # reads rows of columns in any layout
Errors = list[Float[np.ndarray, "rows s"]]  # one array for each size of the neighbourhood


class Score(NamedTuple):
    """How well rows kept aside are predicted, in the units of the targets.

    `coverage`: the fraction of rows inside the 90 % band. `expected`: the log density that the model expects, which
    has less sampling noise than that of few rows. `neighbours`: the number of neighbours that predicts best;
    `is_alone`: whether it does so without the far field. `rows`: how many rows were kept aside.
    """

    rmse: float
    log_density: float
    coverage: float
    expected: float
    neighbours: int
    is_alone: bool
    rows: int

    def improves_on(self, before: Score, passes: float = 1.0) -> bool:
        """Whether the gain since the score so many passes ago is large enough to continue."""
        gain = max(self.log_density - before.log_density, self.expected - before.expected)
        return gain > LEAST_GAIN * passes or self.rmse < LEAST_RATIO**passes * before.rmse

    def in_units(self, unit: float) -> Score:
        """The score in units in which a target of 1 is `unit`."""
        shift = math.log(unit)
        log_density, expected = self.log_density - shift, self.expected - shift
        return self._replace(rmse=unit * self.rmse, log_density=log_density, expected=expected)

    def __str__(self) -> str:
        return f"RMSE {self.rmse:.3g}, log density {self.log_density:.3g}, {100 * self.coverage:.0f} % in the 90 % band"


class Neighbourhood(NamedTuple):
    """Weights u of the nearest k rows of each row, and the variance of the prediction error by these alone."""

    weights: Float[np.ndarray, "rows k"]
    variance: Float[np.ndarray, " rows"]


class Validation(eqx.Module):
    """Rows kept aside, their nearest rows in order of distance, and neighbourhoods of several sizes among these."""

    rows: Int[np.ndarray, " rows"]
    near: Int[np.ndarray, "rows most"]
    neighbourhoods: tuple[Neighbourhood, ...]
    num_outputs: int = eqx.field(static=True, default=1)
    scale: float | Float[np.ndarray, " s"] = 1.0  # what columns were divided by (see `solve`)

    def needed_rows(self) -> Int[np.ndarray, " needed"]:
        """All rows that a score depends on."""
        return np.unique(np.concatenate([self.rows, self.near.ravel()]))

    def errors(self, columns: Columns, read: Read) -> Errors:
        """Errors of predictions, if `columns` are residuals; those by neighbours alone, if they are targets."""
        own = read(columns, self.rows).astype(np.float64)
        near = read(columns, self.near.ravel()).astype(np.float64).reshape(*self.near.shape, -1)

        def errors(hood: Neighbourhood) -> Float[np.ndarray, "rows s"]:
            correction = np.matmul(hood.weights[:, None], near[:, : hood.weights.shape[1]])[:, 0]
            return self.scale * (own - correction)

        return [errors(hood) for hood in self.neighbourhoods]

    def score(self, alone: Errors, both: Errors | None = None) -> Score:
        """The score of the far field and the largest neighbourhood, unless another one is significantly better.

        If the model is right, the far field helps, and so does a larger neighbourhood. So others must be better by two
        standard errors, in log density and in squared errors. Among neighbourhoods alone the best one is taken.
        """
        hoods, k = self.neighbourhoods, self.num_outputs
        cases = [Case(hood, errors[:, :k], hood.variance, True) for hood, errors in zip(hoods, alone, strict=True)]
        best_alone = max(cases, key=lambda case: case.merit)
        if both is None:
            return best_alone.score
        with_far = []
        for hood, errors, simple in zip(hoods, both, alone, strict=True):
            variance = combine_variances(errors[:, k:], simple[:, k:], hood.variance)
            with_far.append(Case(hood, errors[:, :k], variance, False))
        *others, best = with_far
        for case in [*reversed(others), best_alone]:
            best = case if case.is_surely_better_than(best) else best
        return best.score


@dataclass(frozen=True, eq=False)
class Case:
    """Predictions of the rows by some fields: the errors of each output, and variances."""

    hood: Neighbourhood
    errors: Float[np.ndarray, "rows k"]
    variance: Float[np.ndarray, " rows"]
    is_alone: bool

    @cached_property
    def squares(self) -> Float[np.ndarray, " rows"]:
        """Squared errors, on average over outputs."""
        return np.mean(self.errors**2, axis=1)

    @cached_property
    def log_densities(self) -> Float[np.ndarray, " rows"]:
        """log N(error; 0, variance)."""
        variance = np.maximum(self.variance, np.finfo(np.float64).tiny)
        return -0.5 * (self.squares / variance + np.log(2 * math.pi * variance))

    @cached_property
    def bounded(self) -> Float[np.ndarray, " rows"]:
        """Log densities where an error counts as at most MOST_DEVIATIONS standard deviations: for comparisons."""
        variance = np.maximum(self.variance, np.finfo(np.float64).tiny)
        return np.maximum(self.log_densities, -0.5 * (MOST_DEVIATIONS**2 + np.log(2 * math.pi * variance)))

    @property
    def merit(self) -> float:
        """The bounded log density minus the logarithm of the RMSE."""
        rmse = math.sqrt(float(np.mean(self.squares)))
        return float(np.mean(self.bounded)) - math.log(max(rmse, np.finfo(float).tiny))

    def is_surely_better_than(self, other: Case) -> bool:
        """Whether the bounded log density is better by more than chance, row by row, and the RMSE is no worse."""
        gain = self.bounded - other.bounded
        is_sure = gain.mean() > SURE * gain.std() / math.sqrt(len(gain))
        return bool(is_sure and np.mean(self.squares) <= np.mean(other.squares))

    @property
    def score(self) -> Score:
        """Averages over the rows, as a `Score`."""
        variance = np.maximum(self.variance, np.finfo(np.float64).tiny)
        rmse = math.sqrt(float(np.mean(self.squares)))
        covered = float(np.mean(self.errors**2 < Z_90**2 * variance[:, None]))
        expected = -0.5 * float(np.mean(np.log(2 * math.pi * math.e * variance)))
        rows, neighbours = self.hood.weights.shape
        return Score(rmse, float(np.mean(self.log_densities)), covered, expected, neighbours, self.is_alone, rows)


def keep_rows_aside(
    operator: KernelOperator, sizes: tuple[int, ...], key: RandomKey, num_outputs: int = 1
) -> Validation:
    """Random rows, and what a score needs to know about their neighbours."""
    num = min(ROWS_ASIDE if operator.n <= FAR_ALL_UP_TO else ROWS_ASIDE_OF_MANY, operator.n // 4)
    rows = np.sort(generator(key).choice(operator.n, num, replace=False)).astype(np.int32)
    search = NearestRows(operator.kernel, operator.x, operator.layout)
    own = np.asarray(operator.noise.diagonal(rows, np.float64))
    x = search.read(rows[:, None])[:, 0]
    near = search.query_others(rows, x, max(sizes))
    hoods = []
    for size in sizes:
        weights, variance = neighbour_weights(search, operator.noise, x, near[:, :size])
        hoods.append(Neighbourhood(weights, variance + own))
    return Validation(rows, near, tuple(hoods), num_outputs)
