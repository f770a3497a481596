"""The posterior of iterative solvers: standard deviations come from the near field and from sample functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import in_wide
from dualgp._types import AnyArray
from dualgp.posterior.calibration import ROWS_SCORED
from dualgp.posterior.near import leave_rows_out
from dualgp.posterior.observations import noise_of_new, refuse_traced_covariance, with_noise
from dualgp.posterior.posterior import Posterior

NO_SAMPLES = (
    "The standard deviation comes from samples, and this posterior has none. "
    "Condition with num_samples=16, say, or with solver=Cholesky()."
)


@dataclass(frozen=True, eq=False, repr=False)
class SampledPosterior(Posterior):
    """A posterior with weights from an iterative solver, for all rows or for some.

    A standard deviation from s samples alone has a relative standard error of 1 / sqrt(2 s). With a near field it has
    less, because the variance given the neighbours is known.
    """

    @property
    def has_std(self) -> bool:
        return self.prior is not None or self.neighbours > 0

    @property
    def is_exact(self) -> bool:
        return False

    def predict(self, x: Any, *, noise: Any = False) -> tuple[Float[AnyArray, "m ..."], Float[AnyArray, " m"]]:
        return with_noise(self, *moments(self, x), noise)

    def covariance(self, x: Any, *, noise: Any = False) -> Float[np.ndarray, "m m"]:
        """The average of products of sample deviations, a matrix of rank s: m^2 numbers.

        Correlations are those of the samples, the diagonal is that of `std`. Each entry is unbiased, but do not
        invert the matrix: the variance of a point given m others would be too small by a factor of about (s - m) / s.
        """
        refuse_traced_covariance(x)
        if self.prior is None:
            raise ValueError(NO_SAMPLES)
        deviations, variance = (np.asarray(array, np.float64) for array in self.predictor.deviations(x))
        size = np.sqrt(variance / np.maximum(np.sum(deviations**2, axis=1), np.finfo(np.float64).tiny))
        deviations = deviations * size[:, None]
        covariance = deviations @ deviations.T
        covariance[np.diag_indices_from(covariance)] += noise_of_new(self, noise, len(variance))
        return covariance

    @in_wide
    def _leave_rows_out(self, rows: Any = None) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
        """With a near field, the row is removed from both fields (near.py), in n k^3 / 3 operations. Without one, q is
        the mean square of the samples' weights, whose covariance is A^-1, with an error of 18 % for 64 samples; a row
        without a weight is then predicted like a new observation.
        """
        targets, offset, k = self._host_targets.astype(np.float64), np.asarray(self.model.mean), self.num_outputs
        if self.neighbours:
            some = np.arange(self.layout.n, dtype=np.int32) if rows is None else rows.astype(np.int32)
            errors, variance = self._leave_out(some)
            return offset + targets[some] - errors, variance
        num = self.num_samples
        if num <= 2:
            raise ValueError("Leaving one out takes samples. Condition with num_samples=16, say.")
        weights = self.layout.collect(self.weights).astype(np.float64)
        has_weights = weights[:, k:].any(axis=1)
        # 1 / q is s / (s - 2) times too large on average: the inverse of a chi-square with s degrees of freedom
        inverse_q = (1.0 - 2.0 / num) / np.where(has_weights, np.mean(weights[:, k:] ** 2, axis=1), 1.0)
        mean, variance = offset + targets - weights[:, :k] * inverse_q[:, None], inverse_q
        if not has_weights.all():
            others = np.flatnonzero(~has_weights)
            noise = np.asarray(self.row_noise.diagonal(others, np.float64))
            found, std = self.predict(self.layout.read_rows(self.x)[others], noise=noise)
            mean[others], variance[others] = found.reshape(len(others), k), std.astype(np.float64) ** 2
        return (mean, variance) if rows is None else (mean[rows], variance[rows])

    def _scores(self) -> Float[np.ndarray, "rows k"]:
        if not self.neighbours:  # standard deviations from a few functions are too noisy for scores
            return np.zeros((0, self.num_outputs))
        rows = self._single_rows()
        if self.all_rows is not None:
            others = np.setdiff1d(rows, self.all_rows.places)
            rows = others if len(others) >= ROWS_SCORED else rows
        some = np.sort(np.random.default_rng(0).permutation(rows)[:ROWS_SCORED])
        errors, variance = self._leave_out(some)
        return errors / np.sqrt(variance)[:, None]

    def _leave_out(self, rows: Int[np.ndarray, " rows"]) -> tuple[np.ndarray, np.ndarray]:
        """Errors of predictions of these rows from all others, and their variances."""
        near: Any = (self.mean_predictor if self.residuals is None else self.predictor).near
        return leave_rows_out(near, self._weights_of_all_rows(), rows, self.num_outputs)

    def _weights_of_all_rows(self) -> Float[np.ndarray, "n s"]:
        """The weights of all rows, zero for rows that have none."""
        weights = self.far.layout.collect(self.weights)
        if self.all_rows is None:
            return weights
        whole = np.zeros((self.layout.n, weights.shape[1]), weights.dtype)
        whole[np.asarray(self.all_rows.places)] = weights
        return whole

    def _explained(self, x: Any) -> Float[np.ndarray, " m"]:
        # Variances from samples are noisy, so that a bound must not use them.
        return np.asarray(self.model.kernel.diagonal(self.model.kernel.points(x, "x", self.d)), np.float64)


def moments(posterior: Posterior, x: Any, more: str = "") -> tuple[Float[AnyArray, "m ..."], Float[AnyArray, " m"]]:
    """Mean and variance; `more` is added to the error if there is nothing to compute a variance from."""
    if posterior.prior is None and not posterior.neighbours:
        raise ValueError(NO_SAMPLES + more)
    is_known = posterior.neighbours and posterior.residuals is None  # in closed form, without functions
    return (posterior.mean_predictor if is_known else posterior.predictor).moments(x)
