"""A GP of the nearest rows of each test point, by itself: what a few neighbours know, as in Vecchia's approximation."""

import numpy as np

import dualgp as dg
from dualgp.operators.nearest import NearestRows, neighbour_weights


def predict(model: dg.GaussianProcess, data, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of test observations, given the `num` nearest rows by the kernel's own measure."""
    offset = float(model.mean)
    near = NearestRows(model.kernel, data.x).query(data.x_test, num)
    weights, variance = neighbour_weights(model.kernel, model.noise, data.x_test, data.x, near)
    mean = offset + np.sum(weights * (data.y[near] - offset), axis=1)
    return mean, np.sqrt(variance + float(model.noise))
