"""SVGP with inducing points at k-means centres and the variational distribution at its optimum (Titsias, 2009).

The paper optimises the same bound by Adam, locations included. For fixed locations and Gaussian noise the optimum is
known: with S = K_mm + K_mn K_nm / noise the mean is k_xm S^-1 K_mn y / noise and the variance
k_xx - k_xm (K_mm^-1 - S^-1) k_mx. What is left out is that Adam also moves the points; what is gained is that nothing
depends on how long it ran.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from sklearn.cluster import MiniBatchKMeans

import dualgp as dg
from dualgp._arrays import wide
from dualgp._random import independent_normals
from dualgp.operators.cross import CrossProduct, evaluate
from dualgp.operators.layout import Local
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.prior import prior_paths

JITTER = 1e-6  # of the kernel's variance
SEARCH = {"maxfev": 24, "xatol": 0.05, "fatol": 1e-3}


class Inducing(NamedTuple):
    """Inducing points, lower Cholesky factors of K_mm and of S, and S^-1 K_mn y / noise."""

    points: np.ndarray
    root: np.ndarray
    factor: np.ndarray
    weights: np.ndarray


def predict(model: dg.GaussianProcess, data, num_points: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of test observations."""
    return predict_by(model, fit(model, data.x, data.y, num_points, seed), data.x_test)


def predict_by(model: dg.GaussianProcess, found: Inducing, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of observations at points."""
    noise, variance, mean = float(model.noise), float(model.kernel.variance), float(model.mean)
    K_mx = _kernel(model, found.points, x)
    explained = np.sum(solve_triangular(found.root, K_mx, lower=True) ** 2, axis=0)
    left = np.sum(solve_triangular(found.factor, K_mx, lower=True) ** 2, axis=0)
    return mean + K_mx.T @ found.weights, np.sqrt(np.maximum(variance - explained + left, 0.0) + noise)


def mean_by(model: dg.GaussianProcess, found: Inducing, x: np.ndarray) -> np.ndarray:
    """The mean at many points, block by block."""
    blocks = np.array_split(x, max(1, len(x) // 8192))
    return float(model.mean) + np.concatenate([found.weights @ _kernel(model, found.points, x) for x in blocks])


def sample_paths(
    model: dg.GaussianProcess, x: np.ndarray, y: np.ndarray, num_points: int, num: int, key
) -> SamplePaths:
    """`num` functions: prior paths f, moved to u ~ N(K_mm w, K_mm S^-1 K_mm) by k_xm K_mm^-1 (u - f(Z))."""
    prior_key, noise_key = jax.random.split(key)
    found = fit(model, x, y, num_points, 0)
    prior = prior_paths(model.kernel, x.shape[1], num, prior_key)
    draws = evaluate(prior, found.points, found.points, model.kernel)
    spread = solve_triangular(found.factor.T, independent_normals(noise_key, num_points, num), lower=False)
    weights = found.weights[:, None] + spread - cho_solve((found.root, True), draws)
    with wide():
        points, weights = (jnp.asarray(array, jnp.float64) for array in (found.points, weights))
        update = CrossProduct(model.kernel, points, weights, Local(num_points))
    return SamplePaths(model.mean, prior, update)


def learn(kernel: dg.Kernel, x: np.ndarray, y: np.ndarray, points: np.ndarray, noise: float) -> dg.GaussianProcess:
    """Lengthscale, variance and noise that maximise the bound, from those given; the points stay where they are."""
    mean = float(np.mean(y))

    def model_of(logarithms: np.ndarray) -> dg.GaussianProcess:
        lengthscale, variance, noise = np.exp(logarithms)
        return dg.GaussianProcess(type(kernel)(lengthscale, variance), noise, mean)

    start = np.log([float(kernel.lengthscale), float(kernel.variance), noise])
    found = minimize(lambda p: -bound(model_of(p), x, y, points), start, method="Nelder-Mead", options=SEARCH)
    return model_of(found.x)


def bound(model: dg.GaussianProcess, x: np.ndarray, y: np.ndarray, points: np.ndarray) -> float:
    """The lower bound of the log likelihood, for each row: log N(y; Q + noise I) - trace(K - Q) / (2 noise)."""
    found, noise, y = fit(model, x, y, len(points), 0, points), float(model.noise), y - float(model.mean)
    determinant = len(y) * np.log(2 * np.pi * noise) + 2 * np.sum(np.log(np.diag(found.factor) / np.diag(found.root)))
    quadratic = y @ y / noise - found.weights @ found.factor @ (found.factor.T @ found.weights)
    explained = noise * np.trace(cho_solve((found.root, True), found.factor @ found.factor.T) - np.eye(len(points)))
    return -0.5 * (determinant + quadratic + (len(y) * float(model.kernel.variance) - explained) / noise) / len(y)


def fit(
    model: dg.GaussianProcess,
    x: np.ndarray,
    y: np.ndarray,
    num_points: int,
    seed: int = 0,
    points: np.ndarray | None = None,
) -> Inducing:
    """The optimal variational distribution, at k-means centres unless points are given."""
    noise, variance, mean = float(model.noise), float(model.kernel.variance), float(model.mean)
    points = inducing_points(model.kernel, x, num_points, seed) if points is None else points
    K_mm = _kernel(model, points, points) + JITTER * variance * np.eye(num_points)
    S, right = K_mm.copy(), np.zeros(num_points)
    for block in np.array_split(np.arange(len(y)), max(1, len(y) // 4096)):
        K_mn = _kernel(model, points, x[block])
        S += K_mn @ K_mn.T / noise
        right += K_mn @ (y[block].astype(np.float64) - mean) / noise
    factor = np.linalg.cholesky(S)
    return Inducing(points, np.linalg.cholesky(K_mm), factor, cho_solve((factor, True), right))


def inducing_points(kernel: dg.Kernel, x: np.ndarray, num: int, seed: int) -> np.ndarray:
    """Centres of k-means by distances as the kernel measures them; rows at random where inputs are discrete."""
    if not kernel.is_stationary:
        return x[np.random.default_rng(seed).choice(len(x), num, replace=False)]
    lengthscale = np.asarray(kernel.lengthscale)
    clusters = MiniBatchKMeans(num, batch_size=4096, n_init=1, random_state=seed).fit(x / lengthscale)
    return clusters.cluster_centers_ * lengthscale


def _kernel(model: dg.GaussianProcess, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with wide():
        return np.asarray(model.kernel(jnp.asarray(a, jnp.float64), jnp.asarray(b, jnp.float64)))
