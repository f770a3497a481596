"""Outliers: robust and conjugate Gaussian processes (Altamirano, Briol and Knoblauch, ICML 2024, arXiv 2311.00463).

Under a weight w(y) the generalised posterior is again that of a Gaussian process, with

    noise / w^2   in place of the noise,        y - noise * d log w^2 / dy   in place of y

and one solve. The robustness depends on what the weight compares y with (arXiv 2505.21133). Here row i is compared with
its prediction from its nearest other rows, a mean m and a standard deviation s of y. With z = (y - m) / s,

    noise / w^2 = noise + s^2 (z / c)^4

so that rows within a few s count as before, and the influence of a row falls with the third power of z. A weight that
compares y with the noise alone, such as the paper's 1 / (1 + (y - m)^2 / c^2), misses outliers where s is mostly
uncertainty of the function. The model is learned without clear outliers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dualgp.gp import GaussianProcess
from dualgp.solvers import BlockDescent

# Settings of predictions by neighbours alone: nothing is solved, and no rows are kept aside.
BY_NEIGHBOURS: dict[str, Any] = {"neighbours": 128, "num_far": 0, "num_samples": 0, "solver": BlockDescent()}
INNER, OF_NORMAL = 0.8, 1.2815515655446  # the inner fraction of the rows, and how many s it covers if y is normal
BEYOND_DOUBT = 6.0  # times the scale of the inner rows: clear outliers, left out of learning
SOFT = 4.0  # c
MOST_ROUNDS = 10  # rounds of the search for outliers with a given model


class Weighing(NamedTuple):
    """Rows compared with their predictions: `difference` = y - m, `spread` = s."""

    difference: Float[np.ndarray, " n"]
    spread: Float[np.ndarray, " n"]

    def variances(self, noise: Any) -> Float[np.ndarray, " n"]:
        """noise / w^2, for rows with this noise."""
        return noise + self._extra

    def shift(self, noise: Any) -> Float[np.ndarray, " n"]:
        """The shift of y."""
        difference = np.where(self.difference == 0, 1.0, self.difference)
        return 4.0 * noise * self._extra / (difference * self.variances(noise))

    @property
    def ordinary(self) -> Bool[np.ndarray, " n"]:
        """Rows that are not clear outliers, by the scale of the inner rows."""
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
    """Rows compared with ordinary ones, by a model that may not fit yet.

    First the noise is increased by the variance of all targets, so that single neighbours have little weight, then by
    the variance of the differences of ordinary rows, and then not at all, until the set of outliers stays the same.
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
    """`learn` on ordinary rows, with the variances and targets of all rows to condition on.

    `quick`: a `learn` that is used to find these rows. `factors`: the factor of the noise of each row.
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
