"""The sum of a rough and a smooth kernel of one distance."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_parameter
from dualgp._checks import check_positive
from dualgp._types import Parameter
from dualgp.kernels.distances import safe_sqrt
from dualgp.kernels.stationary import Stationary, quadratic_times_exponential, student_t_length

HALVINGS = 80


class RoughSmooth(Stationary):
    """(Matern52(r) + rough * Matern12(r / stretch)) / (1 + rough): smooth functions with rough details.

    `rough`: the variance of the details relative to that of the smooth part; `stretch`: their lengthscales relative to
    its own. Frequencies: those of both terms, in proportion to their variances.
    """

    rough: Parameter = eqx.field(default=0.3, converter=as_parameter)
    stretch: Parameter = eqx.field(default=1.0, converter=as_parameter)

    def __check_init__(self) -> None:
        for name in ("rough", "stretch"):
            value = getattr(self, name)
            check_positive(value, f"RoughSmooth's {name}")
            if value.ndim != 0:
                raise ValueError(f"RoughSmooth's {name} must be a number, got shape {value.shape}.")

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        rough, stretch = (jnp.asarray(value, squared.dtype) for value in (self.rough, self.stretch))
        details = jnp.exp(-safe_sqrt(squared) / stretch)
        return (quadratic_times_exponential(squared, math.sqrt(5.0)) + rough * details) / (1.0 + rough)

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        """Found by bisection of the logarithm, between the lengths of the two terms."""
        rough, stretch = float(self.rough), float(self.stretch)
        ends = np.log([student_t_length(tail, d, 2.5), student_t_length(tail, d, 0.5) / stretch])
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            length = np.exp(middle)
            beyond = (_tail(length, d, 2.5) + rough * _tail(length * stretch, d, 0.5)) / (1.0 + rough)
            low, high = np.where(beyond > tail, middle, low), np.where(beyond > tail, high, middle)
        return np.exp(0.5 * (low + high))


def _tail(length: np.ndarray, d: int, nu: float) -> np.ndarray:
    """The probability that a frequency of a Matern kernel is longer."""
    from scipy.special import betainc

    return betainc(nu, d / 2, 2.0 * nu / (2.0 * nu + length**2))
