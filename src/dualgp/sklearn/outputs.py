"""Several outputs: units and predictions, with a column for each output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dualgp.posterior.calibration import GAUSSIAN, Calibration
from dualgp.sklearn.units import Units
from dualgp.sklearn.warps import Prediction


@dataclass(frozen=True, eq=False)
class Predictions:
    """The distributions of new observations of k outputs at m points."""

    each: tuple[Prediction, ...]

    @property
    def median(self) -> Float[np.ndarray, "m k"]:
        """The median."""
        return self._columns(lambda one: one.median)

    @property
    def mean(self) -> Float[np.ndarray, "m k"]:
        """The mean."""
        return self._columns(lambda one: one.mean)

    @property
    def std(self) -> Float[np.ndarray, "m k"]:
        """The standard deviation."""
        return self._columns(lambda one: one.std)

    def moments(self) -> tuple[Float[np.ndarray, "m k"], Float[np.ndarray, "m k"]]:
        """Mean and standard deviation together."""
        means, stds = zip(*(one.moments() for one in self.each), strict=True)
        return np.stack(means, axis=1), np.stack(stds, axis=1)

    def quantiles(self, levels: Any, **settings: Any) -> Float[np.ndarray, "m k levels"]:
        """The quantiles at these probabilities."""
        return self._columns(lambda one: one.quantiles(levels, **settings))

    def log_density(self, y: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "m k"]:
        """The logarithm of the density at observations, of each output by itself."""
        return np.stack([one.log_density(own) for one, own in zip(self.each, np.transpose(y), strict=True)], axis=1)

    def crps(self, y: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "m k"]:
        """The continuous ranked probability score of observations."""
        return np.stack([one.crps(own) for one, own in zip(self.each, np.transpose(y), strict=True)], axis=1)

    def _columns(self, function: Callable[[Prediction], np.ndarray]) -> np.ndarray:
        return np.stack([function(one) for one in self.each], axis=1)


@dataclass(frozen=True, eq=False)
class UnitsOfMany:
    """The units of k outputs with the same inputs; see `Units`."""

    each: tuple[Units, ...]

    @property
    def x_offset(self) -> Float[np.ndarray, " d"]:
        """Where inputs are centred."""
        return self.each[0].x_offset

    @property
    def y_offset(self) -> Float[np.ndarray, " k"]:
        """The mean of each (transformed) output."""
        return np.array([units.y_offset for units in self.each])

    @property
    def y_scale(self) -> Float[np.ndarray, " k"]:
        """The scale of each output."""
        return np.array([units.y_scale for units in self.each])

    @property
    def warp(self) -> Any:
        """The function of each output that is modelled."""
        return tuple(units.warp for units in self.each)

    @property
    def is_plain(self) -> bool:
        """Whether outputs are modelled as they are."""
        return all(units.is_plain for units in self.each)

    @property
    def of_parameters(self) -> float:
        """The scale of the model's parameters: 1 if outputs have different scales."""
        first = self.each[0].y_scale
        return first if all(units.y_scale == first for units in self.each) else 1.0

    def inputs(self, X: np.ndarray) -> np.ndarray:
        """Centred inputs."""
        return self.each[0].inputs(X)

    def targets(self, x: np.ndarray, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Standardised targets less the trends."""
        return np.stack([units.targets(x, own) for units, own in zip(self.each, y.T, strict=True)], axis=1)

    def outputs(self, values: Any, x: np.ndarray | None = None) -> Any:
        """Values (..., m, k) of the posterior's functions at m centred inputs, or (k,) without x, in units of y."""
        values = np.moveaxis(np.asarray(values, np.float64), -1, 0)
        return np.stack([units.outputs(own, x) for units, own in zip(self.each, values, strict=True)], axis=-1)

    def prediction(self, x: np.ndarray, mean: Any, std: Any, calibration: Calibration = GAUSSIAN) -> Predictions:
        """The distributions of y from means (m, k) and their common standard deviation (m,) at centred inputs."""
        each = zip(self.each, np.asarray(mean).T, strict=True)
        return Predictions(tuple(units.prediction(x, own, std, calibration) for units, own in each))


def main_direction(y: np.ndarray) -> Float[np.ndarray, " n"]:
    """The first principal component of the standardised outputs."""
    if y.ndim == 1:
        return y
    spread = y.std(axis=0)
    z = (y - y.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    first = np.linalg.eigh(z.T @ z)[1][:, -1]
    return z @ (first * np.sign(first[np.argmax(np.abs(first))]))
