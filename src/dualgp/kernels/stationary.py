"""Stationary kernels: variance * profile(||(x - x') / lengthscale||^2), one formula a class.

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

from dualgp._arrays import as_floats, as_parameter, is_traced
from dualgp._checks import check_positive
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.base import Kernel
from dualgp.kernels.distances import distances_from, safe_sqrt
from dualgp.kernels.features import Features, FourierFeatures, draw_frequencies


class Stationary(Kernel):
    """A function of the scaled distance r = ||(x - x') / lengthscale||.

    `lengthscale` is a number or one per dimension; `variance` is k(x, x).
    An infinite lengthscale means that the input does not matter.
    `widths`: how many neighbouring dimensions share each lengthscale, such as (1, 3, 1) for three of them.
    """

    lengthscale: Parameter = eqx.field(default=1.0, converter=as_parameter)
    variance: Parameter = eqx.field(default=1.0, converter=as_parameter)
    widths: tuple[int, ...] | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        name = type(self).__name__
        if not is_traced(self.lengthscale):
            check_positive(np.where(np.isposinf(self.lengthscale), 1.0, self.lengthscale), f"{name}'s lengthscale")
        check_positive(self.variance, f"{name}'s variance")
        if self.lengthscale.ndim > 1 or self.variance.ndim != 0:
            raise ValueError(
                f"{name} takes a lengthscale that is a number or one per dimension and a variance that is a number, "
                f"got shapes {self.lengthscale.shape} and {self.variance.shape}."
            )
        if self.widths is not None and self.lengthscale.shape != (len(self.widths),):
            raise ValueError(
                f"{name} with {len(self.widths)} widths takes as many lengthscales, got shape {self.lengthscale.shape}."
            )

    @abstractmethod
    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        """The kernel at unit variance, as a function of r^2."""

    @abstractmethod
    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        """The length that a frequency in d dimensions exceeds with probability `tail`, at unit lengthscale."""

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.against(x1, x2)(x2)

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        coordinates = self.coordinates(x1)
        squared_to = distances_from(coordinates, coordinates if x1 is x2 else self.coordinates(x2), careful)

        def block(tile: Points) -> Float[Array, "n1 tile"]:
            profile = self.profile(squared_to(self.coordinates(tile)))
            return jnp.asarray(self.variance, profile.dtype) * profile

        return block

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        if isinstance(x, np.ndarray) and isinstance(self.variance, np.ndarray):  # nothing to compile
            return np.full(x.shape[:1], self.variance, np.result_type(x, np.float32))
        return jnp.full(x.shape[:1], jnp.asarray(self.variance, as_floats(x).dtype))

    def largest_variance(self) -> float:
        return float(self.variance)

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        omega, weights = draw_frequencies(self.frequency_length, key, max(1, num_features // 2), d)
        return FourierFeatures(omega / self.lengthscales, weights, self.variance)

    @property
    def lengthscales(self) -> Float[AnyArray, " *d"]:
        """One per dimension, or a number for all."""
        return (
            self.lengthscale
            if self.widths is None
            else self.lengthscale[np.repeat(range(len(self.widths)), self.widths)]
        )

    @property
    def is_stationary(self) -> bool:
        return True

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        x = x if isinstance(x, np.ndarray) and x.dtype.kind == "f" else as_floats(x)
        lengthscales = self.lengthscales
        if lengthscales.ndim == 1 and lengthscales.shape[0] != x.shape[1]:
            raise ValueError(
                f"{type(self).__name__} has {lengthscales.shape[0]} lengthscales, but x has {x.shape[1]} columns. "
                "Pass one lengthscale per column, or a single number."
            )
        return x / lengthscales.astype(x.dtype)


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
        return _student_t_length(tail, d, nu=0.5)


class Matern32(Stationary):
    """(1 + sqrt(3) r) exp(-sqrt(3) r). Frequencies: multivariate t with 3 degrees of freedom."""

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        return _linear_times_exponential(squared, math.sqrt(3.0))

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        return _student_t_length(tail, d, nu=1.5)


class Matern52(Stationary):
    """(1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r). Frequencies: multivariate t with 5 degrees of freedom."""

    def profile(self, squared: Float[Array, "n1 n2"]) -> Float[Array, "n1 n2"]:
        return _quadratic_times_exponential(squared, math.sqrt(5.0))

    def frequency_length(self, tail: np.ndarray, d: int) -> np.ndarray:
        return _student_t_length(tail, d, nu=2.5)


# As functions of r^2, with their derivatives: by way of r, automatic differentiation would lose what equal points
# contribute to second derivatives in x.


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
def _quadratic_times_exponential(squared: Float[Array, "n1 n2"], c: float) -> Float[Array, "n1 n2"]:
    """(1 + c r + (c r)^2 / 3) exp(-c r), whose derivative by r^2 is -c^2 / 6 (1 + c r) exp(-c r)."""
    r = c * jnp.sqrt(squared)
    return (1.0 + r + (c**2 / 3.0) * squared) * jnp.exp(-r)


@_quadratic_times_exponential.defjvp
def _quadratic_times_exponential_jvp(c: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (squared,), (tangent,) = primals, tangents
    slope = -(c**2) / 6.0 * _linear_times_exponential(squared, c)
    return _quadratic_times_exponential(squared, c), slope * tangent


def _student_t_length(tail: np.ndarray, d: int, nu: float) -> np.ndarray:
    """N(0, I) * sqrt(2 nu / chi2_{2 nu}), with *one* chi-square a frequency: one a dimension is another kernel."""
    from scipy.special import betaincinv

    share = betaincinv(nu, d / 2, tail)
    return np.sqrt(2.0 * nu * (1.0 - share) / share)
