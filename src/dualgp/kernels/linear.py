"""Kernels of functions with few degrees of freedom: a straight line, a constant."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_floats, as_parameter, full_precision
from dualgp._checks import check_finite, check_positive
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.base import Kernel
from dualgp.kernels.features import Features, FourierFeatures, LinearFeatures
from dualgp.kernels.scaled import check_scales, constant_diagonal, per_column


def _as_centre(value: float | Sequence[float] | AnyArray) -> float | tuple[float, ...]:
    """The centre as numbers and not as an array, because arrays are learned."""
    return tuple(np.asarray(value, np.float64).tolist()) if np.ndim(value) else float(value)  # type: ignore[arg-type]


class Linear(Kernel):
    """variance * sum_j (x_j - centre_j) (x'_j - centre_j) / lengthscale_j^2: straight lines, zero at the centre.

    `lengthscale` is a number or one per dimension; an infinite one means that the input has no slope. `centre`, a
    number or one per dimension, is not learned: set it to the middle of the data, and add `Constant()` to let lines
    have any height there. k(x, x) has no bound.
    """

    lengthscale: Parameter = eqx.field(default=1.0, converter=as_parameter)
    variance: Parameter = eqx.field(default=1.0, converter=as_parameter)
    centre: Any = eqx.field(default=0.0, converter=_as_centre, static=True)

    def __check_init__(self) -> None:
        check_scales(self.lengthscale, self.variance, "Linear")
        check_finite(np.asarray(self.centre), "Linear's centre")

    @full_precision
    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        left, right = self._scaled(x1), self._scaled(x2)
        return jnp.asarray(self.variance, left.dtype) * (left @ right.T)

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        scaled = self._scaled(x)
        return jnp.asarray(self.variance, scaled.dtype) * jnp.sum(scaled * scaled, axis=1)

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        centre = np.broadcast_to(np.asarray(self.centre), d)
        return LinearFeatures(jnp.broadcast_to(1.0 / self.lengthscale, d), centre, np.ones(1), self.variance)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        """Zeros: lines are correlated everywhere, so that the other terms of a sum choose the neighbourhoods."""
        return 0.0 * self._scaled(x)[:, :1]

    def _scaled(self, x: Points) -> Float[Array, "n d"]:
        x, centre = as_floats(x), np.asarray(self.centre)
        if centre.size not in (1, x.shape[1]):
            raise ValueError(
                f"Linear has a centre of {centre.size} numbers, but x has {x.shape[1]} columns. "
                "Pass one number per column, or a single number."
            )
        return (x - jnp.asarray(centre, x.dtype)) / per_column(self, "lengthscale", self.lengthscale, x).astype(x.dtype)


class Constant(Kernel):
    """variance, whatever the inputs are: a function that is the same number everywhere."""

    variance: Parameter = eqx.field(default=1.0, converter=as_parameter)

    def __check_init__(self) -> None:
        check_positive(self.variance, "Constant's variance")
        if self.variance.ndim != 0:
            raise ValueError(f"Constant's variance must be a number, got shape {self.variance.shape}.")

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        dtype = jnp.result_type(as_floats(x1), as_floats(x2))
        return jnp.full((x1.shape[0], x2.shape[0]), jnp.asarray(self.variance, dtype))

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        return constant_diagonal(self.variance, x)

    def largest_variance(self) -> float:
        return float(self.variance)

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        return FourierFeatures(np.zeros((1, d)), np.ones(1), self.variance)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        """Zeros: nothing depends on neighbourhoods."""
        return jnp.zeros((x.shape[0], 1), as_floats(x).dtype)

    @property
    def is_stationary(self) -> bool:
        return True
