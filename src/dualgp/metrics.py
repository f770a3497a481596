"""How good predictions are: functions of arrays. `std` is that of the observation, noise included."""

from statistics import NormalDist
from typing import Any

import numpy as np

from dualgp._checks import as_float_array, check_finite, check_number, check_size


def rmse(y: Any, mean: Any) -> float:
    """Root mean squared error, sqrt(mean((y - mean)^2))."""
    y, mean = _pair(y, mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def r2(y: Any, mean: Any) -> float:
    """1 - sum((y - mean)^2) / sum((y - average of y)^2). A constant offset lowers it, unlike explained variance."""
    y, mean = _pair(y, mean)
    total = np.sum((y - y.mean()) ** 2)
    if total == 0:
        raise ValueError("r2 is not defined for constant targets. Use rmse.")
    return float(1.0 - np.sum((y - mean) ** 2) / total)


def nll(y: Any, mean: Any, std: Any) -> float:
    """Negative log density of the observations under N(mean, std^2), averaged over them."""
    y, mean, std = _triple(y, mean, std)
    with np.errstate(over="ignore"):
        density = float(np.mean(0.5 * ((y - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2.0 * np.pi)))
    if not np.isfinite(density):
        raise ValueError(
            f"The log density is not finite: the smallest std is {std.min():.3g}. Rescale y, or check std."
        )
    return density


def coverage(y: Any, mean: Any, std: Any, level: float = 0.95) -> float:
    """The share of observations inside the central interval of N(mean, std^2) with probability `level`."""
    check_number(level, "level")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    y, mean, std = _triple(y, mean, std)
    return float(np.mean(np.abs(y - mean) <= NormalDist().inv_cdf(0.5 + level / 2.0) * std))


def crps(y: Any, mean: Any, std: Any) -> float:
    """Continuous ranked probability score of N(mean, std^2), averaged: in the units of y, 0 is perfect."""
    from scipy.special import ndtr  # imported here, because it would double the import time of the package

    y, mean, std = _triple(y, mean, std)
    with np.errstate(over="ignore"):  # where std is tiny
        z = (y - mean) / std
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return float(np.mean((y - mean) * (2.0 * ndtr(z) - 1.0) + std * (2.0 * density - 1.0 / np.sqrt(np.pi))))


def _pair(y: Any, mean: Any) -> tuple[np.ndarray, np.ndarray]:
    y, mean = np.asarray(as_float_array(y, "y"), np.float64), np.asarray(as_float_array(mean, "mean"), np.float64)
    if y.shape != mean.shape or y.size == 0:
        raise ValueError(f"y and mean must have the same shape and at least one value, got {y.shape} and {mean.shape}.")
    for array, name in ((y, "y"), (mean, "mean")):
        check_finite(array, name)
        check_size(array, name)
    return y, mean


def _triple(y: Any, mean: Any, std: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, mean = _pair(y, mean)
    std = np.asarray(as_float_array(std, "std"), np.float64)
    if std.shape not in ((), y.shape):
        raise ValueError(f"std must be one number or have the shape of y, {y.shape}; got shape {std.shape}.")
    check_finite(std, "std")
    std = np.broadcast_to(std, y.shape)
    if not np.all(std > 0):
        raise ValueError("std must be positive everywhere. Include the observation noise: post.std(x, noise=True).")
    return y, mean, std
