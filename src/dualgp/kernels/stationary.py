"""Stationary kernels: variance * profile(||(x - x') / lengthscale||^2). Each class is a formula.

Each class gives its profile, and the distribution of the length of its frequencies (Bochner's theorem): the Fourier
transform of the profile is a spherical density, and cos(omega . (x - x')) averaged over it is the profile again.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_parameter
from dualgp._checks import check_positive
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.distances import distances_from, safe_sqrt
from dualgp.kernels.features import Features, FourierFeatures
from dualgp.kernels.frequencies import draw_frequencies, spherical
from dualgp.kernels.scaled import Scaled


class Stationary(Scaled):
    """A function of the scaled distance r = ||(x - x') / lengthscale||.

    `lengthscale` is a number or one per dimension; `variance` is k(x, x).
    An infinite lengthscale means that the input does not matter.
    `widths`: how many neighbouring dimensions share each lengthscale, such as (1, 3, 1) for three of them.
    """

    @abstractmethod
    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        """The kernel at unit variance, as a function of r^2."""

    @abstractmethod
    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        """The length that a frequency in d dimensions exceeds with probability `tail`, at unit lengthscale."""

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        coordinates = self.coordinates(x1)
        squared_to = distances_from(coordinates, coordinates if x1 is x2 else self.coordinates(x2), careful)

        def block(tile: Points) -> Float[Array, "n1 tile"]:
            profile = self.profile(squared_to(self.coordinates(tile)))
            return jnp.asarray(self.variance, profile.dtype) * profile

        return block

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        omega, weights = draw_frequencies(spherical(self.frequency_length), key, max(1, num_features // 2), d)
        return FourierFeatures(omega / self.lengthscales, weights, self.variance)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        return self.scaled(x)


class RBF(Stationary):
    """exp(-r^2 / 2). Frequencies: N(0, I)."""

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        return jnp.exp(-0.5 * squared)

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        from scipy.special import gammainccinv

        return np.sqrt(2.0 * gammainccinv(d / 2, tail))  # its square is a chi-square with d degrees of freedom


class Matern12(Stationary):
    """exp(-r). Frequencies: multivariate t with 1 degree of freedom (Cauchy)."""

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        return jnp.exp(-safe_sqrt(squared))

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        return student_t_length(tail, d, nu=0.5)


class Matern32(Stationary):
    """(1 + sqrt(3) r) exp(-sqrt(3) r). Frequencies: multivariate t with 3 degrees of freedom."""

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        return _linear_times_exponential(squared, math.sqrt(3.0))

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        return student_t_length(tail, d, nu=1.5)


class Matern52(Stationary):
    """(1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r). Frequencies: multivariate t with 5 degrees of freedom."""

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        return quadratic_times_exponential(squared, math.sqrt(5.0))

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        return student_t_length(tail, d, nu=2.5)


class RationalQuadratic(Stationary):
    """(1 + r^2 / (2 power))^-power: an average of RBF kernels of many lengthscales, for a large power RBF itself.

    Frequencies: N(0, I) times the root of a gamma variable with mean 1 and shape `power`.
    """

    power: Parameter = eqx.field(default=1.0, converter=as_parameter)

    def __check_init__(self) -> None:
        check_positive(self.power, "RationalQuadratic's power")
        if self.power.ndim != 0:
            raise ValueError(f"RationalQuadratic's power must be a number, got shape {self.power.shape}.")

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        power = jnp.asarray(self.power, squared.dtype)
        return jnp.exp(-power * jnp.log1p(squared / (2.0 * power)))

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        return _scaled_normal_length(tail, d, float(self.power))


# Functions of r^2 with derivatives by r^2: automatic differentiation through r would lose the contribution of equal
# points to second derivatives in x.


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _linear_times_exponential(squared: Float[Array, "n1 n2"], c: float) -> Float[Array, "n1 n2"]:
    """(1 + c r) exp(-c r), whose derivative by r^2 is -c^2 / 2 exp(-c r)."""
    r = c * jnp.sqrt(squared)
    return (1.0 + r) * jnp.exp(-r)


@_linear_times_exponential.defjvp
def _linear_times_exponential_jvp(c: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (squared,), (tangent,) = primals, tangents
    return _linear_times_exponential(squared, c), -0.5 * c**2 * jnp.exp(-c * safe_sqrt(squared)) * tangent


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def quadratic_times_exponential(squared: Float[Array, "n1 n2"], c: float) -> Float[Array, "n1 n2"]:
    """(1 + c r + (c r)^2 / 3) exp(-c r), whose derivative by r^2 is -c^2 / 6 (1 + c r) exp(-c r)."""
    r = c * jnp.sqrt(squared)
    return (1.0 + r + (c**2 / 3.0) * squared) * jnp.exp(-r)


@quadratic_times_exponential.defjvp
def _quadratic_times_exponential_jvp(c: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (squared,), (tangent,) = primals, tangents
    slope = -(c**2) / 6.0 * _linear_times_exponential(squared, c)
    return quadratic_times_exponential(squared, c), slope * tangent


def student_t_length(tail: np.ndarray, d: int, nu: float) -> np.ndarray:
    """Lengths of N(0, I) * sqrt(2 nu / chi2_{2 nu}). One chi-square for each dimension would be another kernel."""
    from scipy.special import betaincinv

    share = betaincinv(nu, d / 2, tail)
    return np.sqrt(2.0 * nu * (1.0 - share) / share)


def _scaled_normal_length(tail: np.ndarray, d: int, power: float) -> np.ndarray:
    """Lengths of N(0, I) sqrt(s), s ~ Gamma(power) / power, by a table of P(length > t) = E_s[P(chi2_d > t^2 / s)]."""
    from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, xlogy

    least, most = np.log(np.maximum([gammaincinv(power, 1e-17), gammainccinv(power, 1e-17)], 1e-200))
    logarithm = np.linspace(least, most, 512)  # nodes for power * s, whose density is smooth and vanishes at both ends
    density = np.exp(power * logarithm - np.exp(logarithm) - (xlogy(power, power) - power))
    density, s = density / density.sum(), np.exp(logarithm) / power
    longest = s[-1] * 2.0 * gammainccinv(d / 2, 1e-17)
    squared = np.geomspace(1e-16 * longest, longest, 1024)
    above, below = (of(d / 2, squared[:, None] / (2.0 * s)) @ density for of in (gammaincc, gammainc))
    logit = np.log(np.maximum(above, 1e-300)) - np.log(np.maximum(below, 1e-300))
    wanted = np.log(tail) - np.log1p(-np.minimum(tail, 1.0 - 1e-16))
    return np.exp(0.5 * np.interp(wanted, logit[::-1], np.log(squared)[::-1]))
