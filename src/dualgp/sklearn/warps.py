"""Monotone functions of the target, and predictions made through them.

A Gaussian process is fitted to z = warp(y). A prediction is then the distribution of warp^-1(N(location, spread^2)):
its median differs from its mean. Where it is calibrated, its quantiles are warp^-1(location + spread * Q(p)) instead,
with the quantiles Q of errors in standard deviations (posterior/calibration.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dualgp.posterior.calibration import GAUSSIAN, Calibration

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # E g(N(0, 1)) = sum_i g(node_i) weight_i
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LEVELS = (np.arange(200) + 0.5) / 200  # the mean loss of these quantiles makes the CRPS
BEYOND = 1.0  # times the range of the data in z: `inverse` clips z this far outside


@dataclass(frozen=True)
class Warp:
    """u = (y - shift) / scale as it is ("none"), its logarithm or root, or its Yeo-Johnson transform to `power`.

    `low` and `high`: the range of the fitted data in z. `inverse` clips z one range beyond either end: a wide band
    in logarithms would have an astronomic mean.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("none", "log", "sqrt", "yeo-johnson")

    kind: str = "none"
    shift: float = 0.0
    scale: float = 1.0
    power: float = 1.0
    low: float = -np.inf
    high: float = np.inf

    def __call__(self, y: Any) -> Any:
        u = (np.asarray(y, np.float64) - self.shift) / self.scale
        if self.kind == "log":
            return np.log(u)
        if self.kind == "sqrt":
            return np.sqrt(u)
        return u if self.kind == "none" else _yeo_johnson(u, self.power)

    def inverse(self, z: Any) -> Any:
        """y from z."""
        z = np.asarray(z, np.float64)
        if self.kind != "none":
            margin = BEYOND * (self.high - self.low)
            z = np.clip(z, self.low - margin, self.high + margin)
        if self.kind == "log":
            u = np.exp(z)
        elif self.kind == "sqrt":
            u = np.maximum(z, 0.0) ** 2
        else:
            u = z if self.kind == "none" else _inverse_yeo_johnson(z, self.power)
        return u * self.scale + self.shift

    def log_slope(self, y: Any) -> Any:
        """log dz/dy, which is added to a log density of z to get that of y."""
        u = (np.asarray(y, np.float64) - self.shift) / self.scale
        if self.kind == "log":
            slope = -np.log(u)
        elif self.kind == "sqrt":
            slope = -0.5 * np.log(4.0 * np.maximum(u, 1e-300))
        elif self.kind == "yeo-johnson":
            slope = np.sign(u) * (self.power - 1.0) * np.log1p(np.abs(u))
        else:
            slope = np.zeros_like(u)
        return slope - np.log(self.scale)


def _yeo_johnson(u: Any, power: float) -> Any:
    """((1 + u)^p - 1) / p for u >= 0, and -((1 - u)^(2 - p) - 1) / (2 - p) for u < 0."""
    return np.where(u >= 0, _box_cox(np.maximum(u, 0.0), power), -_box_cox(np.maximum(-u, 0.0), 2.0 - power))


def _inverse_yeo_johnson(z: Any, power: float) -> Any:
    up, down = _inverse_box_cox(np.maximum(z, 0.0), power), _inverse_box_cox(np.maximum(-z, 0.0), 2.0 - power)
    return np.where(z >= 0, up, -down)


def _box_cox(u: Any, power: float) -> Any:
    return np.log1p(u) if power == 0 else np.expm1(power * np.log1p(u)) / power


def _inverse_box_cox(z: Any, power: float) -> Any:
    return np.expm1(z) if power == 0 else np.expm1(np.log1p(power * z) / power)


@dataclass(frozen=True)
class Prediction:
    """The distribution of new observations at m points: warp^-1 of N(location, spread^2).

    Mean, standard deviation and log density are Gaussian in z. Quantiles, median and CRPS use `calibration`.
    """

    warp: Warp
    location: Float[np.ndarray, " m"]
    spread: Float[np.ndarray, " m"]
    calibration: Calibration = GAUSSIAN

    @property
    def median(self) -> Float[np.ndarray, " m"]:
        """The median."""
        return self.quantiles([0.5])[:, 0]

    @property
    def mean(self) -> Float[np.ndarray, " m"]:
        """The mean."""
        return self.moments()[0]

    @property
    def std(self) -> Float[np.ndarray, " m"]:
        """The standard deviation."""
        return self.moments()[1]

    def moments(self) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation together."""
        if self.warp.kind == "none":
            return self.warp.inverse(self.location), self.spread * self.warp.scale
        values = self._at(NODES)
        mean = values @ WEIGHTS
        return mean, np.sqrt((values - mean[:, None]) ** 2 @ WEIGHTS)

    def quantiles(self, levels: Any) -> Float[np.ndarray, "m levels"]:
        """The quantiles at these probabilities."""
        return self._at(self.calibration(levels))

    def log_density(self, y: Any) -> Float[np.ndarray, " m"]:
        """The logarithm of the Gaussian density at observations."""
        z = (self.warp(y) - self.location) / self.spread
        return self.warp.log_slope(y) - 0.5 * z**2 - np.log(self.spread) - 0.5 * np.log(2.0 * np.pi)

    def crps(self, y: Any) -> Float[np.ndarray, " m"]:
        """The continuous ranked probability score of observations: twice the mean loss of all quantiles."""
        if self.warp.kind == "none" and self.calibration.is_gaussian:
            from scipy.special import ndtr  # imported here, because it would double the import time of the package

            mean, std = self.moments()
            z = (np.asarray(y, np.float64) - mean) / std
            density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
            return std * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
        below = np.asarray(y, np.float64)[:, None] - self.quantiles(LEVELS)
        return 2.0 * np.mean(np.maximum(LEVELS * below, (LEVELS - 1.0) * below), axis=1)

    def _at(self, z: Float[np.ndarray, " k"]) -> np.ndarray:
        """y at `z` standard deviations from the location."""
        return self.warp.inverse(self.location[:, None] + self.spread[:, None] * z)


def scores(y: Any, prediction: Prediction) -> dict[str, float]:
    """RMSE of the mean, NLL, coverage of the central 90 % band and CRPS."""
    y = np.asarray(y, np.float64)
    low, high = prediction.quantiles([0.05, 0.95]).T
    return {
        "rmse": float(np.sqrt(np.mean((y - prediction.mean) ** 2))),
        "nll": float(-np.mean(prediction.log_density(y))),
        "coverage90": float(np.mean((y >= low) & (y <= high))),
        "crps": float(np.mean(prediction.crps(y))),
    }
