"""Random features: finite-dimensional maps phi with E[phi(x) . phi(x')] = k(x, x').

Features form the same algebra as kernels: the features of a sum are the features of both terms side by side, those of a
scaled kernel are scaled by the root, and those of a product of stationary kernels add their frequencies.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._types import AnyArray, Points


class Features(eqx.Module):
    """A map from (m, d) inputs to (m, num) features; computes in the dtype of its input."""

    @property
    @abstractmethod
    def num(self) -> int:
        """The number of columns."""

    @property
    @abstractmethod
    def terms(self) -> tuple[FourierFeatures, ...]:
        """The terms of the sum that these features are."""

    @abstractmethod
    def __call__(self, x: Points) -> Float[Array, "m num"]:
        """phi(x)."""

    @abstractmethod
    def scaled(self, scale: AnyArray) -> Features:
        """The features of scale * k."""

    def __add__(self, other: Features) -> Features:
        return SumFeatures(self.terms + other.terms)

    def __mul__(self, other: Features) -> Features:
        return SumFeatures(tuple(a.times(b) for a in self.terms for b in other.terms))


class FourierFeatures(Features):
    """sqrt(variance / M) * [sin(omega x), cos(omega x)] for M frequencies omega; phi(x) . phi(x) = variance exactly."""

    omega: Float[AnyArray, "half d"]
    variance: AnyArray

    @property
    def num(self) -> int:
        return 2 * self.omega.shape[0]

    @property
    def terms(self) -> tuple[FourierFeatures, ...]:
        return (self,)

    def __call__(self, x: Points) -> Float[Array, "m num"]:
        phase = x @ jnp.asarray(self.omega, x.dtype).T
        amplitude = jnp.sqrt(jnp.asarray(self.variance, x.dtype) / self.omega.shape[0])
        return amplitude * jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], axis=1)

    def scaled(self, scale: AnyArray) -> FourierFeatures:
        return FourierFeatures(self.omega, scale * self.variance)

    def times(self, other: FourierFeatures) -> FourierFeatures:
        """The features of the product of two stationary kernels: cos(a) cos(b) averages to cos(a + b)."""
        return FourierFeatures(self.omega + other.omega, self.variance * other.variance)


class SumFeatures(Features):
    """The features of a sum of kernels."""

    parts: tuple[FourierFeatures, ...]

    @property
    def num(self) -> int:
        return sum(part.num for part in self.parts)

    @property
    def terms(self) -> tuple[FourierFeatures, ...]:
        return self.parts

    def __call__(self, x: Points) -> Float[Array, "m num"]:
        return jnp.concatenate([part(x) for part in self.parts], axis=1)

    def scaled(self, scale: AnyArray) -> SumFeatures:
        return SumFeatures(tuple(part.scaled(scale) for part in self.parts))
