"""A posterior whose standard deviations come from its sample functions: what every iterative solver gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dualgp._arrays import in_wide
from dualgp._types import AnyArray
from dualgp.posterior.posterior import Posterior, refuse_traced_covariance, with_noise

NO_SAMPLES = (
    "The standard deviation comes from samples, and this posterior has none. "
    "Condition with num_samples=64, say, or with solver=Cholesky()."
)


@dataclass(frozen=True, eq=False, repr=False)
class SampledPosterior(Posterior):
    """Weights from an iterative solver. With s samples a standard deviation has a standard error of 1 / sqrt(2 s)."""

    @property
    def has_std(self) -> bool:
        return self.prior is not None

    @property
    def is_exact(self) -> bool:
        return False

    def predict(self, x: Any, *, noise: bool = False) -> tuple[Float[AnyArray, " m"], Float[AnyArray, " m"]]:
        return with_noise(self, *moments(self, x), noise)

    def covariance(self, x: Any, *, noise: bool = False) -> Float[np.ndarray, "m m"]:
        """The average of products of sample deviations, a matrix of rank s: m^2 numbers.

        Each entry is fair, but do not invert it. The variance of a point given m others comes out about (s - m) / s of
        what it is.
        """
        refuse_traced_covariance(x)
        if self.prior is None:
            raise ValueError(NO_SAMPLES)
        deviations = np.asarray(self.predictor.deviations(x), np.float64)
        covariance = deviations @ deviations.T / self.num_samples
        covariance[np.diag_indices_from(covariance)] += float(self.model.noise) if noise else 0.0
        return covariance

    @in_wide
    def leave_one_out(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """q is the mean square of the samples' weights, whose covariance is A^-1: 64 samples know it to 18 %.

        A row without weights, which an early end or a short budget leaves behind, has had no say in the posterior: it
        is predicted like any new observation.
        """
        num = self.num_samples
        if num <= 2:
            raise ValueError("Leaving one out takes samples. Condition with num_samples=64, say.")
        targets, weights = (self.layout.collect(array).astype(np.float64) for array in (self.targets, self.weights))
        has_weights = weights[:, 1:].any(axis=1)
        # s / (s - 2) times too large on average: the inverse of a chi-square with s degrees of freedom
        inverse_q = (1.0 - 2.0 / num) / np.where(has_weights, np.mean(weights[:, 1:] ** 2, axis=1), 1.0)
        mean, std = float(self.model.mean) + targets[:, 0] - weights[:, 0] * inverse_q, np.sqrt(inverse_q)
        if not has_weights.all():
            rows = self.layout.read_rows(self.x)[~has_weights]
            mean[~has_weights], std[~has_weights] = self.predict(rows, noise=True)
        return self._with_left_out(mean, std)

    def _explained(self, x: Any) -> Float[np.ndarray, " m"]:
        # Variances from samples are noisy: a bound may not use them.
        return np.asarray(self.model.kernel.diagonal(self.model.kernel.points(x, "x", self.d)), np.float64)


def moments(posterior: Posterior, x: Any, more: str = "") -> tuple[Float[AnyArray, " m"], Float[AnyArray, " m"]]:
    """Mean and mean squared deviation of the samples; `more` is said where there are none."""
    if posterior.prior is None:
        raise ValueError(NO_SAMPLES + more)
    return posterior.predictor.moments(x)
