"""Full-batch gradient descent for any number of steps, without taking them: in the basis of K's eigenvectors.

There each coordinate of the error shrinks by itself, by `1 - beta (s + noise)` a step for the dual objective and by
`1 - beta s (s + noise)` for the primal one, where s is the eigenvalue and beta the step size divided by n.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

import dualgp as dg
from dualgp._arrays import wide


class Spectrum(NamedTuple):
    """Eigenvalues of K, and targets and rows of k(x_test, x) in the basis of its eigenvectors."""

    values: np.ndarray
    targets: np.ndarray
    cross: np.ndarray


def spectrum(model: dg.GaussianProcess, data, cache: Path | None = None) -> Spectrum:
    """In float64: minutes for 13,500 points. `cache` is a .npz file that keeps it."""
    if cache is not None and cache.exists():
        return Spectrum(**np.load(cache))
    matrix = dg.KernelOperator(model.kernel, data.x, model.noise, memory=0).dense()
    values, vectors = eigh(matrix, overwrite_a=True, check_finite=False)
    with wide():
        cross = np.asarray(model.kernel(np.asarray(data.x_test, np.float64), np.asarray(data.x, np.float64)))
    found = Spectrum(np.maximum(values - float(model.noise), 0.0), vectors.T @ data.y, cross @ vectors)
    if cache is not None:
        np.savez(cache, **found._asdict())
    return found


def progress(
    found: Spectrum, noise: float, y_test: np.ndarray, objective: str, step_size: float, steps: int
) -> tuple[float, float, float]:
    """Squared K-norm and K^2-norm of the error of the weights after so many steps from zero, and test RMSE."""
    values, targets, cross = found
    curvature = (values + noise) * {"dual": 1.0, "primal": values}[objective]
    weights = targets / (values + noise)
    with np.errstate(over="ignore", invalid="ignore"):  # it may diverge
        error = weights * (1.0 - step_size / len(values) * curvature) ** steps
        norms = float(values @ error**2), float(values**2 @ error**2)
        return *norms, dg.metrics.rmse(y_test, cross @ (weights - error)) if np.isfinite(norms[1]) else np.inf
