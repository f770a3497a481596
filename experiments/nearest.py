"""A GP of the nearest rows of each test point, by itself: what a few neighbours know, as in Vecchia's approximation."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree

import dualgp as dg
from dualgp._arrays import wide

AT_ONCE = 1000  # test points


def predict(model: dg.GaussianProcess, data, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of test observations, given the `num` nearest rows by the kernel's own measure."""
    noise, offset = float(model.noise), float(model.mean)
    coordinates, at = (np.asarray(model.kernel.coordinates(x), np.float64) for x in (data.x, data.x_test))
    near = cKDTree(coordinates).query(at, num)[1]
    blocks = jax.jit(jax.vmap(lambda x: model.kernel(x, x)))
    mean, variance = np.empty(len(at)), np.empty(len(at))
    for i in range(0, len(at), AT_ONCE):
        some = slice(i, i + AT_ONCE)
        points = np.concatenate([data.x[near[some]], data.x_test[some, None]], axis=1)
        with wide():
            K = np.asarray(blocks(jnp.asarray(points, jnp.float64)))
        across = K[:, :num, num]
        weights = np.linalg.solve(K[:, :num, :num] + noise * np.eye(num), across[..., None])[..., 0]
        mean[some] = offset + np.sum(weights * (data.y[near[some]] - offset), axis=1)
        variance[some] = K[:, num, num] - np.sum(weights * across, axis=1) + noise
    return mean, np.sqrt(variance)
