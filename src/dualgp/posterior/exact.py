"""A posterior with the Cholesky factor of its matrix: means and standard deviations are exact, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled, in_wide, is_traced
from dualgp._checks import check_values
from dualgp._types import AnyArray, Points
from dualgp.kernels import Kernel
from dualgp.operators import policy
from dualgp.posterior.observations import noise_of_new, refuse_traced_covariance, with_noise
from dualgp.posterior.posterior import Posterior
from dualgp.posterior.sampled import moments


@dataclass(frozen=True, eq=False, repr=False)
class ExactPosterior(Posterior):
    """The posterior of the solver `Cholesky`. Inside JAX transformations, standard deviations come from samples."""

    @property
    def has_std(self) -> bool:
        return True

    @property
    def is_exact(self) -> bool:
        return True

    def predict(self, x: Any, *, noise: Any = False) -> tuple[Float[AnyArray, "m ..."], Float[AnyArray, " m"]]:
        if is_traced(x):
            more = " The exact one, from the Cholesky factor, is for calls outside jax.jit, jax.grad and jax.vmap."
            return with_noise(self, *moments(self, x, more), noise)
        return with_noise(self, self.mean(x), self._variance(x), noise)

    @in_wide
    def covariance(self, x: Any, *, noise: Any = False) -> Float[np.ndarray, "m m"]:
        """k(x, x') - k(x, X) A^-1 k(X, x'), in float64: m^2 numbers."""
        refuse_traced_covariance(x)
        points = self._points(x)
        half = self._half(points)
        covariance = _matrix(self.model.kernel, points) - half.T @ half
        check_values(covariance, x)
        covariance[np.diag_indices_from(covariance)] += noise_of_new(self, noise, len(points))
        return covariance

    def _leave_rows_out(self, rows: Any = None) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
        from scipy.linalg import lapack

        k = self.num_outputs
        targets, weights = (np.asarray(array)[:, :k].astype(np.float64) for array in (self.targets, self.weights))
        root, _ = lapack.dtrtri(np.asarray(self.solution.factor), lower=1)
        inverse_q = 1.0 / np.einsum("ij,ij->j", np.tril(root), np.tril(root))
        mean = np.asarray(self.model.mean) + targets - weights * inverse_q[:, None]
        return (mean, inverse_q) if rows is None else (mean[rows], inverse_q[rows])

    def _scores(self) -> Float[np.ndarray, "rows k"]:
        mean, variance = self._leave_rows_out()
        errors = np.asarray(self.model.mean) + self._host_targets - mean
        return (errors / np.sqrt(variance)[:, None])[self._single_rows()]

    @in_wide
    def _variance(self, x: Any) -> Float[np.ndarray, " m"]:
        """k(x, x) - ||L^-1 k(X, x)||^2, block by block."""
        points, size = self._points(x), policy.POINT_BLOCK
        variance = np.asarray(self.model.kernel.diagonal(points)).copy()
        for start in range(0, points.shape[0], size):
            half = self._half(points[start : start + size])
            variance[start : start + size] -= np.einsum("ij,ij->j", half, half)
        check_values(variance, x)
        return np.maximum(variance, 0.0)

    def _explained(self, x: Any) -> Float[np.ndarray, " m"]:
        variance = np.asarray(self.model.kernel.diagonal(self._points(x)), np.float64)
        return np.maximum(variance - self._variance(x), 0.0)

    def _points(self, x: Any) -> Float[np.ndarray, "m d"]:
        return np.asarray(self.model.kernel.points(x, "x", self.d), np.float64)

    def _half(self, points: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n m"]:
        """L^-1 k(X, x)."""
        from scipy.linalg import solve_triangular

        cross = _matrix(self.model.kernel, points, self.x)
        return solve_triangular(self.solution.factor, cross, lower=True, check_finite=False)


def _matrix(kernel: Kernel, points: Float[np.ndarray, "m d"], x: Points | None = None) -> Float[np.ndarray, "n m"]:
    """k(x, points), or k(points, points), in float64. Points are padded, so that few programs are compiled.

    Without compilation here some kernels would compile loops at every call, and programs stay in memory.
    """
    m, n = len(points), 0 if x is None else len(x)
    size = max(16, 1 << max(m - 1, 0).bit_length()) if m <= policy.POINT_BLOCK else m + -m % policy.POINT_BLOCK
    padded = np.resize(points, (size, points.shape[1])) if m else np.zeros((size, points.shape[1]))
    if x is None:
        return np.asarray(_call(kernel, padded, padded))[:m, :m]
    rows = np.pad(np.asarray(x, np.float64), ((0, policy.padded(n) - n), (0, 0)), "edge")
    return np.asarray(_call(kernel, rows, padded))[:n, :m]


@compiled
def _call(kernel: Kernel, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
    return kernel(x1, x2)
