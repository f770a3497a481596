"""The periodic kernel: inputs are points on circles."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_floats, as_parameter
from dualgp._checks import check_positive
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.distances import sum_over_inputs
from dualgp.kernels.features import Features, FourierFeatures
from dualgp.kernels.frequencies import draw_frequencies, independent
from dualgp.kernels.scaled import Scaled, per_column

MOST_HARMONICS = 1 << 20


class Periodic(Scaled):
    """variance * exp(-sum_j (c_j / lengthscale_j)^2 / 2), c_j = period_j / pi * sin(pi (x_j - x'_j) / period_j).

    c_j is the chord between two points on a circle with circumference `period_j`, so that `lengthscale` is in the
    units of x: with a long period this is RBF. Both are numbers or one per dimension. Other libraries write it
    exp(-2 sum_j sin^2(pi (x_j - x'_j) / period_j) / l_j^2), with l = 2 pi lengthscale / period.
    Learning moves a period little: give one that is off by less than a period in all of the data.
    Frequencies: multiples of 2 pi / period, with the Fourier coefficients as probabilities.
    """

    period: Parameter = eqx.field(default=1.0, converter=as_parameter)

    def __check_init__(self) -> None:
        check_positive(self.period, "Periodic's period")
        if self.period.ndim > 1:
            raise ValueError(
                f"Periodic takes a period, or one per dimension, got an array of shape {self.period.shape}."
            )

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        x1 = as_floats(x1)
        constants = tuple(jnp.broadcast_to(number, (1, x1.shape[1])) for number in self._period_and_radius(x1))

        def block(tile: Points) -> Float[Array, "n1 tile"]:
            profile = jnp.exp(-0.5 * sum_over_inputs(_squared_chord, ((x1, as_floats(tile)), constants)))
            return jnp.asarray(self.variance, profile.dtype) * profile

        return block

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        x = np.zeros((1, d))
        period, radius = (np.broadcast_to(np.asarray(number), d) for number in self._period_and_radius(x))
        sizes = independent(lambda tails: np.stack([*map(_harmonic, tails.T, radius)], axis=1))
        omega, weights = draw_frequencies(sizes, key, max(1, num_features // 2), d)
        return FourierFeatures(omega * 2.0 * np.pi / period, weights, self.variance)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        """Points on the circles, in units of the lengthscales."""
        x = as_floats(x)
        period, radius = self._period_and_radius(x)
        angle = 2.0 * jnp.pi * _fraction_of_turn(x / period)
        return jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=1)

    def _period_and_radius(self, x: Points) -> tuple[Any, Any]:
        """The periods, and the radii of the circles in units of the lengthscales."""
        period = per_column(self, "period", self.period, x)
        lengthscale = per_column(self, "lengthscale", self.lengthscales, x)
        return period.astype(x.dtype), (period / (2.0 * np.pi * lengthscale)).astype(x.dtype)


def _squared_chord(of_a: Array, of_b: Array, period: Array, radius: Array) -> Array:
    return (2.0 * radius * _sine_of_half_turns(_fraction_of_turn((of_a - of_b) / period))) ** 2


def _sine_of_half_turns(turns: Array) -> Array:
    """sin(pi turns) for turns between -1/2 and 1/2, by its series. XLA's own sine takes 20 times as long."""
    square = turns * turns
    places = range(7 if turns.dtype == jnp.float32 else 12)
    series = jnp.zeros_like(turns)
    for k in reversed(places):
        series = series * square + (-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1)
    return turns * series


def _fraction_of_turn(turns: Array) -> Array:
    """Turns modulo 1, between -1/2 and 1/2: sines of large numbers have no digits."""
    return turns - jnp.round(turns)


def _harmonic(tail: Float[np.ndarray, " num"], radius: float) -> Float[np.ndarray, " num"]:
    """The smallest k with P(K > k) <= tail, for exp(-2 radius^2 sin^2(t / 2)) = sum_k P(K = k) cos(k t).

    P(K = k) is 2 I_k(radius^2) exp(-radius^2), and half of that for k = 0, with modified Bessel functions I_k.
    """
    from scipy.special import ive

    num = min(int(10.0 * radius) + 32, MOST_HARMONICS)
    probability = ive(np.arange(num), radius**2) * np.where(np.arange(num) > 0, 2.0, 1.0)
    above = np.append(np.cumsum(probability[:0:-1])[::-1], 0.0)
    return np.minimum(np.searchsorted(-above, -tail), num - 1).astype(np.float64)
