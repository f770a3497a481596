"""Random features: finite-dimensional maps phi with E[phi(x) . phi(x')] = k(x, x').

Features form the same algebra as kernels: the features of a sum are the features of both terms side by side, those of a
scaled kernel are scaled by the root, those of a product of stationary kernels add their frequencies, and those of any
other product are products of features, paired one to one, or one with all where a factor is not random.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import as_floats, as_parameter, full_precision
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.waves import sine_and_cosine


class Features(eqx.Module):
    """A map from (m, d) inputs to (m, num) features; computes in the dtype of its input."""

    @property
    @abstractmethod
    def num(self) -> int:
        """The number of columns."""

    @property
    @abstractmethod
    def terms(self) -> "tuple[Term, ...]":
        """The terms of the sum that these features are."""

    @abstractmethod
    def __call__(self, x: Points) -> Float[Array, "m num"]:
        """phi(x)."""

    @abstractmethod
    def scaled(self, scale: AnyArray) -> "Features":
        """The features of scale * k."""

    @abstractmethod
    def resampled(self, key: RandomKey, num: int) -> "Features":
        """Fewer features (num columns a term), a random choice of these; works inside `jax.jit`."""

    def __add__(self, other: "Features") -> "Features":
        return SumFeatures(self.terms + other.terms)

    def __mul__(self, other: "Features") -> "Features":
        return SumFeatures(tuple(a.times(b) for a in self.terms for b in other.terms))


class Term(Features):
    """sqrt(variance * weight) * wave, for independent random waves of one or more components each.

    Weights sum to 1, and so do the squares of the components of a wave, so that phi(x) . phi(x) is the variance. A term
    that is not random has one wave, which in a product is paired with all waves of the other term.
    """

    if TYPE_CHECKING:  # subclasses have a field or a property; type checkers do not allow that for abstract fields

        @property
        def weights(self) -> Float[AnyArray, " waves"]: ...

        @property
        def variance(self) -> AnyArray: ...

    else:
        weights: eqx.AbstractVar[Float[AnyArray, " waves"]]
        variance: eqx.AbstractVar[AnyArray]

    @property
    @abstractmethod
    def components(self) -> int:
        """The number of components of each wave."""

    @abstractmethod
    def waves(self, x: Points) -> Float[Array, "m components waves"]:
        """The waves at these points."""

    @abstractmethod
    def scaled(self, scale: AnyArray) -> "Term":
        """The features of scale * k."""

    @abstractmethod
    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "Term":
        """Some of the waves, with other weights."""

    @property
    def num(self) -> int:
        return self.components * self.weights.shape[0]

    @property
    def terms(self) -> "tuple[Term, ...]":
        return (self,)

    def __call__(self, x: Points) -> Float[Array, "m num"]:
        waves = self.waves(x)
        amplitude = jnp.sqrt(jnp.asarray(self.variance * self.weights, waves.dtype))
        return (amplitude * waves).reshape(x.shape[0], self.num)

    def resampled(self, key: RandomKey, num: int) -> "Term":
        num_waves = max(1, num // self.components)
        weights = jnp.asarray(self.weights)
        index = jax.random.choice(key, weights.shape[0], (num_waves,), p=weights)
        return self.chosen(index, jnp.full(num_waves, 1.0 / num_waves, weights.dtype))

    def times(self, other: "Term") -> "Term":
        """The features of the product of two kernels. Waves are in random order, so that pairs are a random choice."""
        return _paired(self, other)


class FourierFeatures(Term):
    """sqrt(variance * weight) * [sin(omega x), cos(omega x)]."""

    omega: Float[AnyArray, "half d"]
    weights: Float[AnyArray, " half"]
    variance: Parameter = eqx.field(converter=as_parameter)

    @property
    def components(self) -> int:
        return 2

    @full_precision
    def waves(self, x: Points) -> Float[Array, "m 2 half"]:
        phase = x @ jnp.asarray(self.omega, x.dtype).T
        return jnp.stack(sine_and_cosine(phase), axis=1)

    def scaled(self, scale: AnyArray) -> "FourierFeatures":
        return FourierFeatures(self.omega, self.weights, scale * self.variance)

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "FourierFeatures":
        return FourierFeatures(jnp.asarray(self.omega)[index], weights, self.variance)

    def times(self, other: "Term") -> "Term":
        """Fourier features add their frequencies: cos(a) cos(b) averages to cos(a + b), half the columns of pairs."""
        if not isinstance(other, FourierFeatures):
            return _paired(self, other)
        weights = self.weights * other.weights
        return FourierFeatures(self.omega + other.omega, weights / weights.sum(), self.variance * other.variance)


class PairedFeatures(Term):
    """Products of the components of two terms, wave by wave: E[a a' b b'] = E[a a'] E[b b'] for independent waves."""

    left: Term
    right: Term

    @property
    def weights(self) -> Float[AnyArray, " waves"]:
        weights = self.left.weights * self.right.weights
        return weights / weights.sum()

    @property
    def variance(self) -> AnyArray:
        return as_parameter(self.left.variance * self.right.variance)

    @property
    def components(self) -> int:
        return self.left.components * self.right.components

    def waves(self, x: Points) -> Float[Array, "m components waves"]:
        left, right = self.left.waves(x), self.right.waves(x)
        return (left[:, :, None] * right[:, None]).reshape(x.shape[0], self.components, left.shape[2])

    def scaled(self, scale: AnyArray) -> "PairedFeatures":
        return PairedFeatures(self.left.scaled(scale), self.right)

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "PairedFeatures":
        is_single = len(self.right.weights) == 1
        right = self.right if is_single else self.right.chosen(index, jnp.ones_like(weights))
        return PairedFeatures(self.left.chosen(index, weights), right)


class LinearFeatures(Term):
    """sqrt(variance) * (x - centre) / lengthscale: not random, one wave with a component for each input.

    Here the squares of the components sum to the kernel at unit variance, not to 1.
    """

    slope: Float[AnyArray, " d"]
    centre: Float[AnyArray, " d"]
    weights: Float[AnyArray, " waves"]
    variance: Parameter = eqx.field(converter=as_parameter)

    @property
    def components(self) -> int:
        return self.slope.shape[0]

    def waves(self, x: Points) -> Float[Array, "m components waves"]:
        values = (x - jnp.asarray(self.centre, x.dtype)) * jnp.asarray(self.slope, x.dtype)
        return jnp.broadcast_to(values[:, :, None], (*values.shape, self.weights.shape[0]))

    def scaled(self, scale: AnyArray) -> "LinearFeatures":
        return LinearFeatures(self.slope, self.centre, self.weights, scale * self.variance)

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "LinearFeatures":
        return LinearFeatures(self.slope, self.centre, weights, self.variance)


class SeenFeatures(Term):
    """The features of a kernel of a function of the inputs."""

    inner: eqx.AbstractVar[Term]

    @abstractmethod
    def seen(self, x: Points) -> AnyArray:
        """The function of the inputs."""

    @property
    def weights(self) -> Float[AnyArray, " waves"]:
        return self.inner.weights

    @property
    def variance(self) -> AnyArray:
        return self.inner.variance

    @property
    def components(self) -> int:
        return self.inner.components

    def waves(self, x: Points) -> Float[Array, "m components waves"]:
        return self.inner.waves(self.seen(x))

    def scaled(self, scale: AnyArray) -> "SeenFeatures":
        return replace(self, inner=self.inner.scaled(scale))

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "SeenFeatures":
        return replace(self, inner=self.inner.chosen(index, weights))


class ColumnFeatures(SeenFeatures):
    """The features of a kernel that looks at some columns only."""

    inner: Term
    start: int = eqx.field(static=True)
    stop: int | None = eqx.field(static=True)

    def seen(self, x: Points) -> AnyArray:
        return x[:, self.start : self.stop]


class SphereFeatures(SeenFeatures):
    """The features of a kernel that looks at the points of longitudes and latitudes."""

    inner: Term
    columns: tuple[int, int] = eqx.field(static=True)
    radius: float = eqx.field(static=True)

    def seen(self, x: Points) -> AnyArray:
        return points_on_sphere(x, self.columns, self.radius)


def points_on_sphere(x: Points, columns: tuple[int, int], radius: float) -> Float[Array, "m 3"]:
    """The points in space of a longitude and a latitude in degrees."""
    longitude, latitude = (jnp.deg2rad(as_floats(x)[:, column]) for column in columns)
    across = jnp.cos(latitude)
    return radius * jnp.stack([across * jnp.cos(longitude), across * jnp.sin(longitude), jnp.sin(latitude)], axis=1)


def _paired(left: Term, right: Term) -> PairedFeatures:
    """Products of the waves of two terms, one by one; a single wave on the right is paired with all others."""
    left, right = (right, left) if len(left.weights) == 1 else (left, right)
    if len(right.weights) == 1:
        return PairedFeatures(_first(left, max(1, len(left.weights) // right.components)), right)
    num = min(len(left.weights), len(right.weights))
    return PairedFeatures(_first(left, num), _first(right, num))


def _first(term: Term, num: int) -> "Term":
    """The first `num` waves, which are a random choice because waves are in random order."""
    if num == term.weights.shape[0]:
        return term
    weights = term.weights[:num]
    return term.chosen(np.arange(num), weights / weights.sum())


class SumFeatures(Features):
    """The features of a sum of kernels."""

    parts: tuple[Term, ...]

    @property
    def num(self) -> int:
        return sum(part.num for part in self.parts)

    @property
    def terms(self) -> "tuple[Term, ...]":
        return self.parts

    def __call__(self, x: Points) -> Float[Array, "m num"]:
        return jnp.concatenate([part(x) for part in self.parts], axis=1)

    def resampled(self, key: RandomKey, num: int) -> "SumFeatures":
        keys = jax.random.split(key, len(self.parts))
        return SumFeatures(tuple(part.resampled(key, num) for part, key in zip(self.parts, keys, strict=True)))

    def scaled(self, scale: AnyArray) -> "SumFeatures":
        return SumFeatures(tuple(part.scaled(scale) for part in self.parts))
