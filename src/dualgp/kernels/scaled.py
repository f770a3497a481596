"""The base class of kernels with a lengthscale and a variance."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_floats, as_parameter, is_traced
from dualgp._checks import check_count, check_positive
from dualgp._types import AnyArray, Parameter, Points
from dualgp.kernels.base import Kernel


class Scaled(Kernel):
    """A stationary kernel of x / lengthscale, whose value at equal inputs is `variance`.

    `widths`: how many neighbouring dimensions share each lengthscale, such as (1, 3, 1) for three of them.
    """

    lengthscale: Parameter = eqx.field(default=1.0, converter=as_parameter)
    variance: Parameter = eqx.field(default=1.0, converter=as_parameter)
    widths: tuple[int, ...] | None = eqx.field(default=None, static=True, kw_only=True)

    def __check_init__(self) -> None:
        name = type(self).__name__
        check_scales(self.lengthscale, self.variance, name)
        for width in self.widths or ():
            check_count(width, f"A width of {name}", 1)
        if self.widths is not None and self.lengthscale.shape != (len(self.widths),):
            raise ValueError(
                f"{name} with {len(self.widths)} widths takes as many lengthscales, got shape {self.lengthscale.shape}."
            )

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.against(x1, x2)(x2)

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        return constant_diagonal(self.variance, x)

    def largest_variance(self) -> float:
        return float(self.variance)

    @property
    def is_stationary(self) -> bool:
        return True

    @property
    def lengthscales(self) -> Float[AnyArray, " *d"]:
        """One per dimension, or a number for all."""
        if self.widths is None:
            return self.lengthscale
        return self.lengthscale[np.repeat(range(len(self.widths)), self.widths)]

    def scaled(self, x: Points) -> Float[AnyArray, "n d"]:
        """x / lengthscale."""
        x = x if isinstance(x, np.ndarray) and x.dtype.kind == "f" else as_floats(x)
        return x / per_column(self, "lengthscale", self.lengthscales, x).astype(x.dtype)


def constant_diagonal(variance: AnyArray, x: Points) -> Float[AnyArray, " n"]:
    """The variance for each row."""
    if isinstance(x, np.ndarray) and isinstance(variance, np.ndarray):  # NumPy compiles nothing
        return np.full(x.shape[:1], variance, np.result_type(x, np.float32))
    return jnp.full(x.shape[:1], jnp.asarray(variance, as_floats(x).dtype))


def per_column(kernel: Kernel, name: str, values: AnyArray, x: Points) -> AnyArray:
    """The values of a hyperparameter; an error unless they are a number or one for each column of x."""
    if values.ndim == 1 and values.shape[0] != x.shape[1]:
        raise ValueError(
            f"{type(kernel).__name__} has {values.shape[0]} {name}s, but x has {x.shape[1]} columns. "
            f"Pass one {name} per column, or a single number."
        )
    return values


def root_sums(scales: Float[np.ndarray, " d"], widths: tuple[int, ...]) -> Float[np.ndarray, " groups"]:
    """The root of the sum of squares over the dimensions that share a lengthscale."""
    return np.sqrt(np.add.reduceat(scales**2, np.cumsum((0, *widths[:-1]))))


def check_scales(lengthscale: AnyArray, variance: AnyArray, name: str) -> None:
    """Refuse what cannot be a lengthscale and a variance of the kernel `name`."""
    if not is_traced(lengthscale):
        check_positive(np.where(np.isposinf(lengthscale), 1.0, lengthscale), f"{name}'s lengthscale")
    check_positive(variance, f"{name}'s variance")
    if lengthscale.ndim > 1 or variance.ndim != 0:
        raise ValueError(
            f"{name} takes a lengthscale that is a number or one per dimension and a variance that is a number, "
            f"got shapes {lengthscale.shape} and {variance.shape}."
        )
