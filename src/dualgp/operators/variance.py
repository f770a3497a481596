"""The variance of a prediction from few sample functions, with the known variance of a simpler prediction as control.

d is the deviation of a sample by far and near field, d1 its deviation by neighbours alone, whose variance V is known
and not smaller. If the far field has converged, d is the deviation of the exact posterior and independent of the
difference h = d1 - d, which is small in dense data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

# The number of squared standard errors of mean d h at which both estimates count equally. The relative error of a std
# from 16 draws with mean h^2 = V / 10 is 7 % by regression, 3 % with this average, 2 % assuming independence.
DOUBT = 4.0


def combine_variances(
    deviations: Float[Any, "m s"], simple: Float[Any, "m s"], variance: Float[Any, " m"]
) -> Float[Any, " m"]:
    """Var d from s draws of (d, d1), jointly normal with mean zero, where Var d1 = `variance` is known.

    An average of two estimates: one assumes that d and h are independent, the other is a regression. The weight of the
    regression is t / (t + DOUBT) with t = s (mean d h)^2 / (mean d^2 mean h^2), about 1 under independence. `variance`
    is the upper limit, and with fewer than three draws the answer. Arrays are those of NumPy, JAX or torch.
    """
    num = deviations.shape[1]
    if num < 3:
        return variance
    missing = simple - deviations
    square, rest = ((array**2).mean(axis=1).clip(min=_tiny(array)) for array in (deviations, missing))
    evidence = num * ((deviations * missing).mean(axis=1) / square) * ((deviations * missing).mean(axis=1) / rest)
    weight = evidence / (evidence + DOUBT)
    dependent = _if_dependent(deviations, simple, variance)
    return (weight * dependent + (1 - weight) * _if_independent(square, rest, variance)).clip(max=variance)


def _tiny(array: Any) -> float:
    return float(np.finfo(str(array.dtype).removeprefix("torch.")).tiny)


def _if_dependent(
    deviations: Float[Any, "m s"], simple: Float[Any, "m s"], variance: Float[Any, " m"]
) -> Float[Any, " m"]:
    """Regression, by maximum likelihood: slope^2 V + mean (d - slope d1)^2, slope = sum d d1 / sum d1^2."""
    slope = (deviations * simple).sum(axis=1) / ((simple**2).sum(axis=1) + _tiny(simple))
    return slope**2 * variance + ((deviations - slope[:, None] * simple) ** 2).mean(axis=1)


def _if_independent(square: Float[Any, " m"], rest: Float[Any, " m"], variance: Float[Any, " m"]) -> Float[Any, " m"]:
    """The average of mean d^2 and V - mean h^2, weighted by their precisions."""
    ratio = square / (square + rest)
    first, second = (1 - ratio) ** 2, ratio**2
    return (first * square + second * (variance - rest).clip(min=0.0)) / (first + second)
