"""Bounds on the error of the mean, from the residual r of its weights.

With the far field alone

    |mean - exact mean|  <=  sqrt(sup k) ||r|| / (2 sqrt(noise))          everywhere
                         <=  sqrt(k(x, x) - var(x)) ||r|| / sqrt(noise)    at x, if var is known exactly

and with a near field sqrt(var_N(x)) ||r|| / sqrt(noise), where var_N(x) is the variance given the neighbours alone, at
most k(x, x). `noise` is the smallest variance of all rows. The bounds include the rounding error of the mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dualgp._arrays import in_wide, on_device
from dualgp._checks import check_values
from dualgp.operators.tiles import precision

if TYPE_CHECKING:
    from dualgp.posterior.posterior import Posterior


@in_wide
def error_bound(posterior: Posterior, x: Any = None) -> float | Float[np.ndarray, " m"]:
    """The bound for every output, everywhere or at (m, d) points."""
    k, kernel, has_near_field = posterior.num_outputs, posterior.model.kernel, posterior.neighbours > 0
    sizes = np.linalg.norm(np.asarray(posterior._host_targets, np.float64), axis=0)
    root = float(np.max(posterior.solution.residual_upper[:k] * sizes)) / math.sqrt(posterior.row_noise.smallest)
    weights = posterior.far.layout.read_rows(posterior.weights)[:, :k].astype(np.float64)
    rounding = float(np.finfo(precision(posterior.x)).eps) * float(np.linalg.norm(weights, axis=0).max())
    if x is None:
        largest = kernel.largest_variance()
        return math.sqrt(largest) * root / (1 if has_near_field else 2) + largest * rounding
    points = on_device(kernel.points(x, "x", posterior.d), precision(posterior.x))
    variance = np.asarray(kernel.diagonal(points), np.float64)
    if has_near_field:
        return np.sqrt(posterior.mean_predictor.moments(x)[1].astype(np.float64)) * root + variance * rounding
    factor = np.minimum(np.sqrt(posterior._explained(x)), np.sqrt(variance) / 2)
    bound = factor * root + variance * rounding
    check_values(bound, x)
    return bound
