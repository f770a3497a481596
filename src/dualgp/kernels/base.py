"""The kernel interface and its algebra."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import as_parameter, is_traced, on_device
from dualgp._checks import check_points, check_positive
from dualgp._random import subkeys
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.features import Features


class Kernel(eqx.Module):
    """A positive semi-definite function k(x, x').

    Hyperparameters are positive array leaves of the module. A kernel computes in the dtype of the inputs it is given.
    """

    @abstractmethod
    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        """The matrix block with entries k(x1[i], x2[j])."""

    @abstractmethod
    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        """The values k(x[i], x[i])."""

    @abstractmethod
    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        """Random features phi with E[phi(x) @ phi(x').T] = k(x, x'), so that phi(x) @ N(0, I) is a prior draw.

        `num_features` counts the columns of phi for one term; a sum of kernels has as many for each of its terms.
        """

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        """The inputs on a scale where near points are strongly correlated. Only the speed of solvers depends on it."""
        return jnp.asarray(x)

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        """The function tile -> k(x1, tile) for tiles of x2. Work that depends on x1 or on all of x2 is done once.

        `careful`: compute float32 distances to all digits, even where that takes longer.
        """
        return lambda tile: self(x1, tile)

    def largest_variance(self) -> float:
        """An upper bound on k(x, x) for all inputs, outside `jax.jit`; infinity where none is known."""
        return math.inf

    @property
    def is_stationary(self) -> bool:
        """Whether it depends on differences of inputs only, so that all inputs may be shifted."""
        return False

    @property
    def falls_with_distance(self) -> bool:
        """Whether inputs with near `coordinates` are the strongly correlated ones, so that a tree finds them."""
        return self.is_stationary

    def points(self, x: Any, name: str = "x", d: int | None = None) -> AnyArray:
        """Inputs as an (m, d) array that the kernel accepts; others are an error that says what is wrong."""
        return check_points(x, name, d)

    def stored(self, x: AnyArray, dtype: Any) -> Array:
        """The inputs as they are kept in memory, for arithmetic in `dtype` (float32 or float64)."""
        return on_device(x, dtype)

    def to_sklearn(self, noise: float | None = None) -> Any:
        """The same kernel of scikit-learn, if there is one; with a WhiteKernel if `noise` is given."""
        from dualgp.kernels.translate import as_sklearn

        return as_sklearn(self, noise)

    def __repr__(self) -> str:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields = {name: value for name, value in fields.items() if value is not None}
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in fields.items())})"

    def __add__(self, other: Any) -> Kernel:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scale(other, self)

    def __rmul__(self, other: Any) -> Kernel:
        return Scale(other, self)


def _shown(value: Any) -> str:
    """A hyperparameter with four digits; a long vector is cut in the middle."""
    if is_traced(value):
        return "traced"
    if not isinstance(value, (np.ndarray, jax.Array)):
        return repr(value)
    numbers = [f"{number:.4g}" for number in np.ravel(value)]
    shown = numbers if len(numbers) <= 12 else [*numbers[:3], "...", *numbers[-3:]]
    return f"[{', '.join(shown)}]" if np.ndim(value) else numbers[0]


class Pair(Kernel):
    """The base class of sums and products."""

    left: eqx.AbstractVar[Kernel]
    right: eqx.AbstractVar[Kernel]

    @property
    def is_stationary(self) -> bool:
        return self.left.is_stationary and self.right.is_stationary

    @property
    def falls_with_distance(self) -> bool:
        return self.left.falls_with_distance and self.right.falls_with_distance

    def points(self, x: Any, name: str = "x", d: int | None = None) -> AnyArray:
        left, right = self.left.points(x, name, d), self.right.points(x, name, d)
        return left if left.dtype == right.dtype else check_points(x, name, d)

    def stored(self, x: AnyArray, dtype: Any) -> Array:
        left, right = self.left.stored(x, dtype), self.right.stored(x, dtype)
        return left if left.dtype == right.dtype else jnp.asarray(x, dtype)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        return jnp.concatenate([self.left.coordinates(x), self.right.coordinates(x)], axis=1)


class Sum(Pair):
    """(k1 + k2)(x, x') = k1(x, x') + k2(x, x')."""

    left: Kernel
    right: Kernel

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.left(x1, x2) + self.right(x1, x2)

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        left, right = (kernel.against(x1, x2, careful) for kernel in (self.left, self.right))
        return lambda tile: left(tile) + right(tile)

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        return self.left.diagonal(x) + self.right.diagonal(x)

    def largest_variance(self) -> float:
        return self.left.largest_variance() + self.right.largest_variance()

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        left, right = subkeys(key, 2)
        return self.left.features(left, num_features, d) + self.right.features(right, num_features, d)

    def __repr__(self) -> str:
        return f"{self.left!r} + {self.right!r}"


class Product(Pair):
    """(k1 * k2)(x, x') = k1(x, x') * k2(x, x')."""

    left: Kernel
    right: Kernel

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.left(x1, x2) * self.right(x1, x2)

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        left, right = (kernel.against(x1, x2, careful) for kernel in (self.left, self.right))
        return lambda tile: left(tile) * right(tile)

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        return self.left.diagonal(x) * self.right.diagonal(x)

    def largest_variance(self) -> float:
        return self.left.largest_variance() * self.right.largest_variance()

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        left, right = subkeys(key, 2)
        return self.left.features(left, num_features, d) * self.right.features(right, num_features, d)

    def __repr__(self) -> str:
        return " * ".join(f"({k!r})" if isinstance(k, Sum) else repr(k) for k in (self.left, self.right))


class Scale(Kernel):
    """(c * k)(x, x') = c * k(x, x') for a positive number c."""

    scale: Parameter = eqx.field(converter=as_parameter)
    kernel: Kernel

    def __check_init__(self) -> None:
        check_positive(self.scale, "A kernel's scale")
        if self.scale.ndim != 0:
            raise ValueError(f"A kernel can be scaled by one number, got an array of shape {self.scale.shape}.")

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        block = self.kernel(x1, x2)
        return jnp.asarray(self.scale, block.dtype) * block

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        inner = self.kernel.against(x1, x2, careful)

        def block(tile: Points) -> Float[Array, "n1 tile"]:
            values = inner(tile)
            return jnp.asarray(self.scale, values.dtype) * values

        return block

    @property
    def is_stationary(self) -> bool:
        return self.kernel.is_stationary

    @property
    def falls_with_distance(self) -> bool:
        return self.kernel.falls_with_distance

    def points(self, x: Any, name: str = "x", d: int | None = None) -> AnyArray:
        return self.kernel.points(x, name, d)

    def stored(self, x: AnyArray, dtype: Any) -> Array:
        return self.kernel.stored(x, dtype)

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        diagonal = self.kernel.diagonal(x)
        return jnp.asarray(self.scale, diagonal.dtype) * diagonal

    def largest_variance(self) -> float:
        return float(self.scale) * self.kernel.largest_variance()

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        return self.kernel.features(key, num_features, d).scaled(self.scale)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        return self.kernel.coordinates(x)

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, Sum) else repr(self.kernel)
        return f"{'traced' if is_traced(self.scale) else f'{float(self.scale):.4g}'} * {inner}"
