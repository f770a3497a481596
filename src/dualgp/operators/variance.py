"""The variance of a prediction from few sample functions, where a simpler prediction's variance is known."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._arrays import is_traced
from dualgp._types import AnyArray


def combine_variances(
    deviations: Float[AnyArray, "m s"], simple: Float[AnyArray, "m s"], variance: Float[AnyArray, " m"]
) -> Float[Any, " m"]:
    """Var d from s draws of (d, d1), jointly normal with mean zero, where Var d1 = `variance` is known.

    d1 is the deviation of a prediction by neighbours alone, d that of the far and near field, which is never larger on
    average: `variance` is the upper limit. The estimate of maximum likelihood is

        slope^2 * variance + mean (d - slope * d1)^2,      slope = sum d d1 / sum d1^2

    a control variate whose coefficient is each point's own. Its relative standard error is sqrt((1 - rho^4) 2 / s) with
    the correlation rho of d and d1. With fewer than three draws it is `variance`.
    """
    numpy: Any = jnp if is_traced(deviations, variance) else np
    if deviations.shape[1] < 3:
        return variance
    square = numpy.maximum((simple**2).sum(axis=1), jnp.finfo(simple.dtype).tiny)
    slope = (deviations * simple).sum(axis=1) / square
    rest = ((deviations - slope[:, None] * simple) ** 2).mean(axis=1)
    return numpy.minimum(slope**2 * variance + rest, variance)
