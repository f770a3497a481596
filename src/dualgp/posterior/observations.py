"""New observations: the function plus noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dualgp._arrays import is_traced
from dualgp._checks import check_positive, refuse_traced
from dualgp._types import AnyArray

if TYPE_CHECKING:
    from dualgp.posterior.posterior import Posterior


def with_noise(posterior: Posterior, mean: AnyArray, variance: AnyArray, noise: Any) -> tuple[AnyArray, AnyArray]:
    """Mean and standard deviation, of the function or of a new observation."""
    std = (variance + noise_of_new(posterior, noise, mean.shape[0])) ** 0.5
    return mean, std if is_traced(std) else std.astype(mean.dtype)


def noise_of_new(posterior: Posterior, noise: Any, m: int) -> Any:
    """The noise of new observations at m points: zero, the model's, or the given variances."""
    if isinstance(noise, (bool, np.bool_)):
        return float(posterior.model.noise) if noise else 0.0
    check_positive(noise, "noise (variances of new observations)", "Pass True for the model's noise.")
    if np.shape(noise) not in ((), (m,)):
        raise ValueError(
            f"noise must be True, False, or a variance for each of the {m} point(s), got shape {np.shape(noise)}."
        )
    return noise if is_traced(noise) else np.asarray(noise, np.float64)


def refuse_traced_covariance(x: Any) -> None:
    """Refuse a joint covariance inside JAX transformations."""
    refuse_traced("Posterior.covariance", x)
