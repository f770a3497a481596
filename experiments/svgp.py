"""SVGP with inducing points at k-means centres and the variational distribution at its optimum (Titsias, 2009).

Molecules have no centres: there the inducing points are some of the molecules, at random.

The paper optimises the same bound by Adam, locations included. For fixed locations and Gaussian noise the optimum is
known: with S = K_mm + K_mn K_nm / noise the mean is k_xm S^-1 K_mn y / noise and the variance
k_xx - k_xm (K_mm^-1 - S^-1) k_mx. What is left out is that Adam also moves the points; what is gained is that nothing
depends on how long it ran.
"""

import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from sklearn.cluster import MiniBatchKMeans

import dualgp as dg
from dualgp._arrays import wide

JITTER = 1e-6  # of the kernel's variance


def predict(model: dg.GaussianProcess, data, num_points: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of test observations."""
    noise, variance, mean = float(model.noise), float(model.kernel.variance), float(model.mean)
    points = inducing_points(model.kernel, data.x, num_points, seed)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with wide():
            return np.asarray(model.kernel(jnp.asarray(a, jnp.float64), jnp.asarray(b, jnp.float64)))

    K_mm = kernel(points, points) + JITTER * variance * np.eye(num_points)
    S, right = K_mm.copy(), np.zeros(num_points)
    for block in np.array_split(np.arange(len(data.y)), max(1, len(data.y) // 4096)):
        K_mn = kernel(points, data.x[block])
        S += K_mn @ K_mn.T / noise
        right += K_mn @ (data.y[block].astype(np.float64) - mean) / noise
    root, factor = np.linalg.cholesky(K_mm), cho_factor(S, lower=True)
    K_mx = kernel(points, data.x_test)
    explained = np.sum(solve_triangular(root, K_mx, lower=True) ** 2, axis=0)
    left = np.sum(solve_triangular(factor[0], K_mx, lower=True) ** 2, axis=0)
    return mean + K_mx.T @ cho_solve(factor, right), np.sqrt(np.maximum(variance - explained + left, 0.0) + noise)


def inducing_points(kernel: dg.Kernel, x: np.ndarray, num: int, seed: int) -> np.ndarray:
    """Centres of k-means by distances as the kernel measures them; rows at random where inputs are discrete."""
    if not kernel.is_stationary:
        return x[np.random.default_rng(seed).choice(len(x), num, replace=False)]
    lengthscale = np.asarray(kernel.lengthscale)
    clusters = MiniBatchKMeans(num, batch_size=4096, n_init=1, random_state=seed).fit(x / lengthscale)
    return clusters.cluster_centers_ * lengthscale
