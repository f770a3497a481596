"""The variance of a prediction from few sample functions, where a simpler prediction's variance is known.

d is the deviation of a sample by far and near field, d1 that by neighbours alone, whose variance V is known and never
smaller on average. What neighbours do not know is their difference h = d1 - d. Where the far field has converged, d is
the exact posterior's deviation and independent of h, which is small in dense data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

# How many squared standard errors of mean d h speak as loud as the theory that it is zero. Relative error of a std from
# 16 draws where neighbours know nine tenths of V: 7 % by any dependence, 3 with this, 2 by independence.
DOUBT = 4.0


def combine_variances(
    deviations: Float[Any, "m s"], simple: Float[Any, "m s"], variance: Float[Any, " m"]
) -> Float[Any, " m"]:
    """Var d from s draws of (d, d1), jointly normal with mean zero, where Var d1 = `variance` is known.

    An average of the estimates for independent d and h and for any others. The weight of the second is t / (t + DOUBT)
    with t = s (mean d h)^2 / (mean d^2 mean h^2), about 1 if they are independent. `variance` is the upper limit, and
    with fewer than three draws the answer. Arrays of NumPy, JAX or torch.
    """
    num = deviations.shape[1]
    if num < 3:
        return variance
    missing = simple - deviations
    square, rest = ((array**2).mean(axis=1).clip(min=_tiny(array)) for array in (deviations, missing))
    evidence = num * ((deviations * missing).mean(axis=1) / square) * ((deviations * missing).mean(axis=1) / rest)
    weight = evidence / (evidence + DOUBT)
    any_other = _if_dependent(deviations, simple, variance)
    return (weight * any_other + (1 - weight) * _if_independent(square, rest, variance)).clip(max=variance)


def _tiny(array: Any) -> float:
    return float(np.finfo(str(array.dtype).removeprefix("torch.")).tiny)


def _if_dependent(
    deviations: Float[Any, "m s"], simple: Float[Any, "m s"], variance: Float[Any, " m"]
) -> Float[Any, " m"]:
    """That of maximum likelihood: slope^2 V + mean (d - slope d1)^2, slope = sum d d1 / sum d1^2."""
    slope = (deviations * simple).sum(axis=1) / ((simple**2).sum(axis=1) + _tiny(simple))
    return slope**2 * variance + ((deviations - slope[:, None] * simple) ** 2).mean(axis=1)


def _if_independent(square: Float[Any, " m"], rest: Float[Any, " m"], variance: Float[Any, " m"]) -> Float[Any, " m"]:
    """mean d^2 and V - mean h^2, by the precision that they have where d has the share mean d^2 / mean (d^2 + h^2)."""
    share = square / (square + rest)
    first, second = (1 - share) ** 2, share**2
    return (first * square + second * (variance - rest).clip(min=0.0)) / (first + second)
