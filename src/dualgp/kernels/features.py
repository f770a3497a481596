"""Random features: finite-dimensional maps phi with E[phi(x) . phi(x')] = k(x, x').

Features form the same algebra as kernels: the features of a sum are the features of both terms side by side, those of a
scaled kernel are scaled by the root, those of a product of stationary kernels add their frequencies, and those of any
other product are products of features, paired one to one.

Frequencies are stratified by length. Where data are dense, the uncertainty that remains is that of the few highest
frequencies of the prior, and plain draws hold too few of those: with 2,048 frequencies the posterior standard deviation
then comes out wrong by 5 to 30 %, the same way everywhere. Strata of tail probability 1/2, 1/4, 1/8, ... with a fair
share of frequencies each, and weights to match, bring that below 1 %.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import as_parameter, full_precision
from dualgp._random import generator
from dualgp._types import AnyArray, Parameter, Points, RandomKey

NUM_STRATA = 16


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
        """Fewer features (num columns a term), drawn from these as from the whole distribution; works under jit."""

    def __add__(self, other: "Features") -> "Features":
        return SumFeatures(self.terms + other.terms)

    def __mul__(self, other: "Features") -> "Features":
        return SumFeatures(tuple(a.times(b) for a in self.terms for b in other.terms))


class Term(Features):
    """sqrt(variance * weight) * wave, for independent random waves of one or more components each.

    Weights sum to 1, and the components' squares of a wave to 1, so that phi(x) . phi(x) is the variance.
    """

    if TYPE_CHECKING:  # a field or a property; for type checkers an abstract field can only become a field

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
        """Of each wave."""

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
        """The features of the product of two kernels. Waves are in random order, so that pairs are a fair draw."""
        return PairedFeatures(self, other)


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
        return jnp.stack([jnp.sin(phase), jnp.cos(phase)], axis=1)

    def scaled(self, scale: AnyArray) -> "FourierFeatures":
        return FourierFeatures(self.omega, self.weights, scale * self.variance)

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "FourierFeatures":
        return FourierFeatures(jnp.asarray(self.omega)[index], weights, self.variance)

    def times(self, other: "Term") -> "Term":
        """With frequencies on the other side too, cos(a) cos(b) averages to cos(a + b): half the columns of pairs."""
        if not isinstance(other, FourierFeatures):
            return PairedFeatures(self, other)
        weights = self.weights * other.weights
        return FourierFeatures(self.omega + other.omega, weights / weights.sum(), self.variance * other.variance)


class PairedFeatures(Term):
    """Products of the components of two terms, wave by wave: E[a a' b b'] = E[a a'] E[b b'] for independent waves."""

    left: Term
    right: Term

    def __init__(self, left: Term, right: Term) -> None:
        num = min(left.weights.shape[0], right.weights.shape[0])
        self.left, self.right = (_first(term, num) for term in (left, right))

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
        return PairedFeatures(self.left.chosen(index, weights), self.right.chosen(index, jnp.ones_like(weights)))


class ColumnFeatures(Term):
    """The features of a kernel that looks at some columns only."""

    inner: Term
    start: int = eqx.field(static=True)
    stop: int | None = eqx.field(static=True)

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
        return self.inner.waves(x[:, self.start : self.stop])

    def scaled(self, scale: AnyArray) -> "ColumnFeatures":
        return ColumnFeatures(self.inner.scaled(scale), self.start, self.stop)

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> "ColumnFeatures":
        return ColumnFeatures(self.inner.chosen(index, weights), self.start, self.stop)


def _first(term: Term, num: int) -> "Term":
    """The first `num` waves: a fair draw of those that are alike."""
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


def draw_frequencies(
    length: Callable[[np.ndarray, int], np.ndarray], key: RandomKey, num: int, d: int
) -> tuple[Float[np.ndarray, "num d"], Float[np.ndarray, " num"]]:
    """`num` frequencies in random order from a spherical density, stratified by length, and weights that sum to 1.

    `length(tail, d)` is the length exceeded with probability `tail`. Drawn in float64, so that a seed means the same
    prior function in every precision.
    """
    strata = min(NUM_STRATA, num)
    probability = 0.5 ** np.minimum(np.arange(1, strata + 1), strata - 1)  # 1/2, 1/4, ..., 2^-k, 2^-k
    if strata == 1:
        probability = np.ones(1)
    share = np.sqrt(probability)  # between a fair share of the bulk and a fair share of the tail
    counts = 1 + np.floor((num - strata) * share / share.sum()).astype(int)
    counts[0] += num - counts.sum()

    rng = generator(key)
    jitter = rng.random(num)
    stratum = np.repeat(np.arange(strata), counts)
    place = np.arange(num) - np.repeat(np.cumsum(counts) - counts, counts)
    below = 1.0 - np.cumsum(probability)  # the smallest tail probability of each stratum
    below[-1] = 0.0
    tail = below[stratum] + probability[stratum] * (place + jitter) / counts[stratum]

    direction = rng.standard_normal((num, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    order = rng.permutation(num)
    omega = length(np.maximum(tail, 1e-12), d)[:, None] * direction
    return omega[order], (probability / counts)[stratum][order]
