"""Outliers: robust and conjugate Gaussian processes (Altamirano, Briol and Knoblauch, ICML 2024, arXiv 2311.00463).

Under a weight w(y) the generalised posterior is again that of a Gaussian process, with

    noise / w^2   in place of the noise,        y - noise * d log w^2 / dy   in place of y

and one solve. What the weight compares y with decides how robust it is (arXiv 2505.21133). Here row i is compared with
what its nearest other rows say about it, a mean m and a standard deviation s of y. With z = (y - m) / s,

    noise / w^2 = noise + s^2 (z / c)^4

so that rows within a few s count as before, and the pull of a row falls with the third power of z. A weight that
compares y with the noise alone, such as the paper's 1 / (1 + (y - m)^2 / c^2), lets outliers through where s is mostly
doubt about the function. The model is learned without the rows that are outliers beyond doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dualgp.gp import GaussianProcess
from dualgp.solvers import BlockDescent

# What says what a row should be: neighbours alone. There is nothing to solve, and nothing that rows kept aside decide.
BY_NEIGHBOURS: dict[str, Any] = {"neighbours": 128, "num_far": 0, "num_samples": 0, "solver": BlockDescent()}
INNER, OF_NORMAL = 0.8, 1.2815515655446  # this share of the rows at least is ordinary; a normal one is within so many s
BEYOND_DOUBT = 6.0  # times the scale of ordinary rows: such rows are not learned from
SOFT = 4.0  # c
MOST_ROUNDS = 10  # of looking for outliers with a given model


class Weighing(NamedTuple):
    """How far rows are from what others say: `difference` = y - m, `spread` = s."""

    difference: Float[np.ndarray, " n"]
    spread: Float[np.ndarray, " n"]

    def variances(self, noise: Any) -> Float[np.ndarray, " n"]:
        """noise / w^2, for rows with this noise."""
        return noise + self._extra

    def shift(self, noise: Any) -> Float[np.ndarray, " n"]:
        """What is added to y."""
        difference = np.where(self.difference == 0, 1.0, self.difference)
        return 4.0 * noise * self._extra / (difference * self.variances(noise))

    @property
    def ordinary(self) -> Bool[np.ndarray, " n"]:
        """Rows that are no outliers beyond doubt, by the scale of the inner rows."""
        z = np.abs(self.difference) / self.spread
        return z <= BEYOND_DOUBT * np.quantile(z, INNER) / OF_NORMAL

    @property
    def _extra(self) -> Float[np.ndarray, " n"]:
        return self.spread**2 * (self.difference / (SOFT * self.spread)) ** 4

    def __str__(self) -> str:
        lost = int(np.count_nonzero(self._extra > self.spread**2))
        share = f"{100.0 * lost / len(self.spread):.2g} %"
        return f"{lost:,} rows ({share}) are so far from what others say that they lost most of their weight."


def weigh(
    model: GaussianProcess,
    x: np.ndarray,
    y: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, " n"],
    ordinary: Bool[np.ndarray, " n"] | None = None,
) -> Weighing:
    """Rows compared with their nearest other rows, among those that are `ordinary`."""
    kept = np.ones(len(y), bool) if ordinary is None else ordinary
    posterior = model.condition(x[kept], y[kept], noise=noise[kept], **BY_NEIGHBOURS)
    mean, spread = np.empty(len(y)), np.empty(len(y))
    mean[kept], spread[kept] = posterior.leave_one_out()
    if not kept.all():
        mean[~kept], spread[~kept] = posterior.predict(x[~kept], noise=noise[~kept])
    return Weighing(y - mean, spread)


def find_outliers(
    model: GaussianProcess, x: np.ndarray, y: Float[np.ndarray, " n"], noise: Float[np.ndarray, " n"]
) -> Weighing:
    """Rows compared with ordinary ones by a model that may not fit yet, or that outliers would lead astray.

    With as much more noise as all targets vary at first, so that nobody believes a single neighbour, then with as much
    as ordinary rows differ from what others say, and then with none, until no row changes sides.
    """
    found = weigh(model, x, y, noise + np.var(y))
    found = weigh(model, x, y, noise + np.mean(found.difference[found.ordinary] ** 2), found.ordinary)
    for _ in range(MOST_ROUNDS):
        before, found = found, weigh(model, x, y, noise, found.ordinary)
        if np.array_equal(before.ordinary, found.ordinary):
            break
    return found


def learn_robustly(
    learn: Callable[..., Any],
    quick: Callable[..., Any],
    model: GaussianProcess,
    x: np.ndarray,
    y: Float[np.ndarray, " n"],
    factors: Float[np.ndarray, " n"],
) -> Any:
    """What `learn` finds of a model in ordinary rows, with the variances and targets of all rows to condition on.

    `quick`: the same, for finding out which rows these are. `factors`: what the noise is multiplied by in each row.
    """
    ordinary = find_outliers(model, x, y, float(model.noise) * factors).ordinary
    learned = quick(model, x[ordinary], y[ordinary], noise=_some(factors, ordinary))
    if not learned.interrupted:
        model = learned.model
        ordinary = weigh(model, x, y, float(model.noise) * factors, ordinary).ordinary
        learned = learn(model, x[ordinary], y[ordinary], noise=_some(factors, ordinary))
    noise = float(learned.model.noise) * factors
    weighing = weigh(learned.model, x, y, noise, ordinary)
    message = f"{learned.message} {weighing}"
    variances, targets = weighing.variances(noise), y + weighing.shift(noise)
    return replace(learned, message=message, posterior=None, noise=variances, targets=targets)


def _some(factors: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    return None if np.all(factors == 1.0) else factors[rows]
