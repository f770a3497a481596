"""Conversion between the inputs and targets of the user and those of the posterior."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from dualgp.posterior.calibration import GAUSSIAN, Calibration
from dualgp.sklearn.warps import Prediction, Warp


@dataclass(frozen=True, eq=False)
class Units:
    """x = X - x_offset and targets = (warp(y) - y_offset) / y_scale - x @ slopes."""

    x_offset: Float[np.ndarray, " d"]
    y_offset: float
    y_scale: float
    warp: Warp = field(default_factory=Warp)
    slopes: Float[np.ndarray, " d"] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether y is modelled as it is."""
        return self.warp.kind == "none"

    @property
    def of_parameters(self) -> float:
        """The scale of the model's parameters."""
        return self.y_scale

    def inputs(self, X: np.ndarray) -> np.ndarray:
        """Centred inputs."""
        if not self.x_offset.any():
            return X
        return (X - self.x_offset).astype(np.float64 if X.dtype == np.uint8 else X.dtype)

    def targets(self, x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, " n"]:
        """Standardised targets less the trend."""
        z = self.warp(y)
        if not np.all(np.isfinite(z)):
            raise ValueError(
                f"target_transform={self.warp.kind!r} was fitted to positive targets, got {np.min(y):.4g}."
            )
        return (z - self.y_offset) / self.y_scale - self.trend(x)

    def trend(self, x: np.ndarray) -> Any:
        """The linear part, in standard deviations of z."""
        return 0.0 if self.slopes is None else np.asarray(x, np.float64) @ self.slopes

    def outputs(self, values: Any, x: np.ndarray | None = None) -> Any:
        """Values of the posterior's functions at the m centred inputs x, in units of y; without x, less the trend."""
        values = np.asarray(values, np.float64) + (0.0 if x is None else self.trend(x))
        return self.warp.inverse(values * self.y_scale + self.y_offset)

    def prediction(self, x: np.ndarray, mean: Any, std: Any, calibration: Calibration = GAUSSIAN) -> Prediction:
        """The distribution of y from the posterior's mean and standard deviation at centred inputs."""
        location = (np.asarray(mean, np.float64) + self.trend(x)) * self.y_scale + self.y_offset
        return Prediction(self.warp, location, np.asarray(std, np.float64) * self.y_scale, calibration)
