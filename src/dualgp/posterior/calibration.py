"""Quantiles of new observations from scores of rows that were predicted without themselves.

With the scores of such rows, z_i = (y_i - mean_i) / std_i, a quantile of a new observation is

    mean(x)  +  std(x) * Q_z(p)

where Q_z(p) is the empirical quantile of the z_i. For any distribution of the noise, a new z is below Q_z(p) with
probability p if it is exchangeable with these (conformal prediction). For Gaussian z it is the quantile of the model.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from dualgp._checks import as_float_array

FEWEST_SCORES = 100  # with fewer, Q_z(0.05) would have an error of 0.2, and Gaussian quantiles are used
NUM_QUANTILES = 201
# Random rows that are scored: the coverage of a 90 % band is then known to half a per cent.
ROWS_SCORED = 4096
NORMAL = NormalDist()


class Calibration(eqx.Module):
    """Q_z as pairs of quantiles: `normal` of a standard normal variable, `values` of z, at the same probabilities.

    Linear interpolation in the normal quantile; beyond the ends Gaussian, through the median and the end.
    """

    normal: Float[np.ndarray, " levels"]
    values: Float[np.ndarray, " levels"]

    @property
    def is_gaussian(self) -> bool:
        """Whether Q_z is that of a standard normal variable."""
        return bool(np.array_equal(self.normal, self.values))

    def __call__(self, p: Any) -> Float[np.ndarray, " p"]:
        """The quantiles of z at probabilities between 0 and 1, which must be a list or an array with one dimension."""
        normal = np.array([NORMAL.inv_cdf(level) for level in probabilities(p)])
        return normal if self.is_gaussian else _extended(normal, self.normal, self.values, *self._middle)

    def cdf(self, z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The probabilities of smaller z."""
        normal = z if self.is_gaussian else _extended(z, self.values, self.normal, *self._middle[::-1])
        return np.array([NORMAL.cdf(value) for value in normal])

    @property
    def _middle(self) -> tuple[float, float]:
        return 0.0, float(np.interp(0.0, self.normal, self.values))


def _extended(
    x: np.ndarray, known: np.ndarray, values: np.ndarray, middle: float, centre: float
) -> Float[np.ndarray, " n"]:
    """Linear interpolation; beyond the ends the lines from (middle, centre) through the first and the last point."""
    found = np.interp(x, known, values)
    for end, beyond in ((0, x < known[0]), (-1, x > known[-1])):
        slope = (values[end] - centre) / (known[end] - middle) if known[end] != middle else 0.0
        found = np.where(beyond, centre + slope * (x - middle), found)
    return found


GAUSSIAN = Calibration(np.array([-1.0, 1.0]), np.array([-1.0, 1.0]))


def calibrate(z: Float[np.ndarray, " n"]) -> Calibration:
    """Q_z of these scores: the i-th smallest of n is the quantile at i / (n + 1). Gaussian if they are few or equal."""
    z = z[np.isfinite(z)]
    if len(z) < FEWEST_SCORES or np.ptp(z) == 0:
        return GAUSSIAN
    normal = np.linspace(-1.0, 1.0, NUM_QUANTILES) * NORMAL.inv_cdf(len(z) / (len(z) + 1))
    levels = np.array([NORMAL.cdf(value) for value in normal])
    return Calibration(normal, np.quantile(z, levels, method="weibull"))


def probabilities(p: Any) -> Float[np.ndarray, " p"]:
    """Probabilities, strictly between 0 and 1, as an array; refuse other values."""
    levels = np.atleast_1d(np.asarray(as_float_array(p, "quantiles"), np.float64))
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"quantiles must be probabilities between 0 and 1, such as [0.1, 0.5, 0.9], got {levels}.")
    return levels
