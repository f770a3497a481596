"""Predictions of a fitted regressor, in the units of the data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dualgp.columns.encoding import Encoding
from dualgp.operators import policy
from dualgp.posterior import Posterior
from dualgp.posterior.calibration import GAUSSIAN
from dualgp.sklearn.conditioning import finite_score, validated
from dualgp.sklearn.frames import encode
from dualgp.sklearn.outputs import UnitsOfMany
from dualgp.sklearn.preparation import draw_observations
from dualgp.sklearn.units import Units


class Predicting:
    """Predictions by a posterior, the units of the data and, for frames, an encoding."""

    posterior_: Posterior
    units_: Units | UnitsOfMany
    encoding_: Encoding | None
    noise_field_: Posterior | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.multi_output = True
        return tags

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        quantiles: Any = None,
        noise: bool = True,
        calibrated: bool = True,
    ) -> Any:
        """The mean at (m, d) points; with `return_std` or `return_cov` also the std or covariance of observations.

        `quantiles`, such as [0.1, 0.5, 0.9]: return these quantiles of new observations instead, (m, 3).
        `noise=False` leaves the noise out, for the function behind the observations.
        With k outputs, arrays of (m, k), covariances (m, m, k) and quantiles (m, k, 3).
        Quantiles of observations are calibrated by the errors of rows predicted without themselves (see
        `Posterior.calibration`). With `calibrated=False`, and for the function, they are Gaussian.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be asked for.")
        if not (return_std or return_cov or quantiles is not None):
            return self.mean_at(self._ready(X)[1])
        prediction = self.distribution(X, noise=noise, calibrated=calibrated and quantiles is not None)
        if quantiles is not None:
            return prediction.quantiles(quantiles)
        mean, std = prediction.moments()
        if return_cov:
            posterior, x = self._ready(X)
            covariance = posterior.covariance(x, noise=self._noise_at(x) if noise else False)
            root = np.sqrt(covariance.diagonal())  # if y is warped, correlations are those of the warped targets
            ratio = std.T / root
            covariance = covariance * ratio[..., :, None] * ratio[..., None, :]
            return mean, np.moveaxis(covariance, 0, -1) if std.ndim > 1 else covariance
        return (mean, std) if return_std else mean

    def distribution(self, X: Any, *, noise: bool = True, calibrated: bool = True) -> Any:
        """The distribution of new observations (or with `noise=False` of the function): mean, median, quantiles.

        A `Prediction`, or `Predictions` of several outputs.
        """
        return self._distribution_at(self._ready(X)[1], noise, calibrated)

    def _distribution_at(self, x: np.ndarray, noise: bool = True, calibrated: bool = False) -> Any:
        """The same at centred inputs."""
        if not self.posterior_.has_std:
            raise ValueError(
                "Error bars come from posterior functions, and there are none. Fit with n_samples=64, say."
            )
        mean, std = self.posterior_.predict(x, noise=self._noise_at(x) if noise else False)
        if self.encoding_ is not None:
            std = np.sqrt(np.asarray(std, np.float64) ** 2 + self.encoding_.doubt(x + self.units_.x_offset))
        calibration = self.posterior_.calibration if calibrated and noise else GAUSSIAN
        return self.units_.prediction(x, mean, std, calibration)

    def mean_at(self, x: np.ndarray) -> np.ndarray:
        """Means at centred inputs, without standard deviations unless the warp needs them."""
        if self.units_.is_plain:
            return self.units_.outputs(self.posterior_.mean(x), x)
        if self.posterior_.has_std:
            return self._distribution_at(x).mean
        std = np.sqrt(self._noise_at(x))
        return self.units_.prediction(x, self.posterior_.mean(x), std).mean

    def inputs_of(self, X: Any) -> np.ndarray:
        """The centred inputs of the posterior for rows like those that it was fitted to."""
        return self._ready(X)[1]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the mean's predictions."""
        return finite_score(RegressorMixin.score, self, X, y, sample_weight)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of new observations, noise included, jointly at (m, d) points: (m, n_samples), or (m, k, n_samples).

        They are posterior functions plus noise. If `n_samples` exceeds the number of functions, they are exact draws
        for an exact fit (up to 4,096 rows), and an error otherwise.
        """
        posterior, x = self._ready(X)
        policy.check_functions(n_samples, len(x), "n_samples")
        values = draw_observations(posterior, x, n_samples, check_random_state(random_state), self._noise_at(x))
        return np.moveaxis(self.units_.outputs(values, x), 0, -1)

    def sample_functions(self) -> Callable[[Any], np.ndarray]:
        """The posterior functions, without noise: a callable from (m, d) points to (n_samples, m) values, or
        (n_samples, m, k)."""
        check_is_fitted(self)
        frozen = copy.copy(self)  # later fits and updates change the functions

        def functions(X: Any) -> np.ndarray:
            posterior, x = frozen._ready(X)
            return frozen.units_.outputs(posterior.samples(x), x)

        return functions

    def report_solution(self) -> list[str]:
        """The sentences of the report about how well the equations were solved."""
        if isinstance(self.units_, UnitsOfMany):
            sentences = self.posterior_.report_solution()
            return [*sentences, "Errors in these sentences are those of targets divided by their standard deviation."]
        sentences = self.posterior_.report_solution(unit=self.units_.y_scale)
        if self.units_.is_plain:
            return sentences
        kind = self.units_.warp.kind
        return [*sentences, f"Errors in these sentences are those of the transformed target ({kind})."]

    @property
    def X_offset_(self) -> np.ndarray:
        """Where inputs are centred."""
        return self.units_.x_offset

    @property
    def y_offset_(self) -> Any:
        """The mean of the (transformed) targets, of each output."""
        return self.units_.y_offset

    @property
    def y_scale_(self) -> Any:
        """The standard deviation of the (transformed) targets, of each output."""
        return self.units_.y_scale

    @property
    def warp_(self) -> Any:
        """The monotone function of y that is modelled, of each output."""
        return self.units_.warp

    def _noise_at(self, x: np.ndarray) -> np.ndarray:
        """The variances of new observations of weight 1 at centred inputs, in units of the posterior."""
        noise, field = float(self.posterior_.model.noise), self.noise_field_
        return np.full(len(x), noise) if field is None else noise * np.exp(np.asarray(field.mean(x), np.float64))

    def _ready(self, X: Any) -> tuple[Posterior, np.ndarray]:
        """The posterior and centred inputs."""
        check_is_fitted(self)
        X = validated(self, X, reset=False) if self.encoding_ is None else encode(X, self.encoding_)
        return self.posterior_, self.units_.inputs(X)
