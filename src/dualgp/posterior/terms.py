"""The posterior of one term of a sum of kernels, such as trend or details.

With k = k_1 + k_2 + ..., f = mean + f_1 + f_2 + ... with independent f_t ~ GP(0, k_t). Given the data,

    f_t(x)  =  phi_t(x) @ w_t  +  k_t(x, X) @ (weights of the mean - weights of the sample)  +  near field
    var(f_t(x))  =  k_t(x, x) - k_t(x, X) A^-1 k_t(X, x)

The means of all terms add up to the posterior mean less the constant; functions do as well, variances do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._arrays import in_wide, is_traced, wide
from dualgp._types import AnyArray
from dualgp.kernels import Kernel, Product, Scale, Sum
from dualgp.kernels.columns import View
from dualgp.kernels.features import SumFeatures
from dualgp.operators import policy
from dualgp.posterior.exact import ExactPosterior
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.posterior import Posterior
from dualgp.posterior.predictor import Predictor
from dualgp.posterior.prior import PriorPaths
from dualgp.posterior.sampled import NO_SAMPLES, SampledPosterior


@dataclass(frozen=True, eq=False, repr=False)
class TermPosterior:
    """One term of a sum of kernels, given the data. Made by `Posterior.term`.

    Standard deviations are exact for the solver `Cholesky`, outside JAX transformations, and otherwise those of the
    samples.
    """

    kernel: Kernel
    posterior: Posterior
    predictor: Predictor

    def mean(self, x: Any) -> Float[AnyArray, "m ..."]:
        """The posterior mean of the term at (m, d) points."""
        return self._mean_predictor.mean(x)

    def std(self, x: Any) -> Float[AnyArray, " m"]:
        """The posterior standard deviation of the term at (m, d) points."""
        return self.predict(x)[1]

    def predict(self, x: Any) -> tuple[Float[AnyArray, "m ..."], Float[AnyArray, " m"]]:
        """Mean and standard deviation together."""
        if isinstance(self.posterior, ExactPosterior) and not is_traced(x):
            return self.mean(x), np.sqrt(self._variance(self.posterior, x))
        if self.predictor.prior is None and self.predictor.near is None:
            raise ValueError(NO_SAMPLES)
        predictor = self._mean_predictor if self.predictor.prior is None else self.predictor
        mean, variance = predictor.moments(x)
        return mean, variance**0.5

    @cached_property
    def samples(self) -> SamplePaths:
        """The functions of this term. Over all terms they add up to the posterior's functions less the constant."""
        with wide():
            return self.predictor.functions(is_corrected=self.posterior.samples.near is not None)

    @cached_property
    def _mean_predictor(self) -> Predictor:
        k = self.predictor.num_outputs
        with wide():
            far = eqx.tree_at(lambda far: far.weights, self.predictor.far, self.predictor.far.weights[:, :k])
            near = self.predictor.near
            near = None if near is None else near.map_columns(lambda columns: columns[:, :k])
            return Predictor(self.predictor.constant, None, far, near, k)

    @in_wide
    def _variance(self, posterior: ExactPosterior, x: Any) -> Float[np.ndarray, " m"]:
        """k_t(x, x) - ||L^-1 k_t(X, x)||^2, block by block."""
        from scipy.linalg import solve_triangular

        points = np.asarray(posterior.model.kernel.points(x, "x", posterior.d), np.float64)
        data, size = jnp.asarray(posterior.x, jnp.float64), policy.POINT_BLOCK
        variance = np.array(self.kernel.diagonal(points), np.float64)
        for start in range(0, len(points), size):
            cross = np.asarray(self.kernel(data, points[start : start + size]))
            half = solve_triangular(posterior.solution.factor, cross, lower=True, check_finite=False)
            variance[start : start + size] -= np.einsum("ij,ij->j", half, half)
        return np.maximum(variance, 0.0)

    def __repr__(self) -> str:
        return f"TermPosterior({self.kernel!r} of {self.posterior!r})"


@in_wide
def posterior_of_term(posterior: Posterior, term: Any) -> TermPosterior:
    """The posterior of a term of the kernel: one of `additive_terms`, or its index among them."""
    if not isinstance(posterior, (ExactPosterior, SampledPosterior)):
        raise TypeError(f"The terms of a {type(posterior).__name__} are not known: condition with solver='auto', say.")
    terms = additive_terms(posterior.model.kernel)
    place = _place(terms, term)
    far, kernel = posterior.far, terms[place]
    prior = None if posterior.prior is None else _prior_of_term(posterior.prior, terms, place)
    far = eqx.tree_at(lambda far: far.kernel, far, kernel)
    near = posterior.predictor.near if posterior.prior is not None else posterior.mean_predictor.near
    near = None if near is None else replace(near, term=kernel)
    return TermPosterior(kernel, posterior, Predictor(np.zeros(()), prior, far, near, posterior.num_outputs))


def additive_terms(kernel: Kernel) -> list[Kernel]:
    """The terms of nested sums, scaled ones and those in an `On` included: 2 * (a + b) has 2 * a and 2 * b."""
    if isinstance(kernel, Sum):
        return additive_terms(kernel.left) + additive_terms(kernel.right)
    if isinstance(kernel, (Scale, View)):
        inner = additive_terms(kernel.kernel)
        return [eqx.tree_at(lambda k: k.kernel, kernel, term) for term in inner] if len(inner) > 1 else [kernel]
    return [kernel]


def _place(terms: list[Kernel], term: Any) -> int:
    if isinstance(term, (int, np.integer)) and not isinstance(term, bool) and 0 <= term < len(terms):
        return int(term)
    for place, known in enumerate(terms):
        if known is term or (isinstance(term, Kernel) and eqx.tree_equal(known, term)):
            return place
    shown = ", ".join(f"{place}: {known!r}" for place, known in enumerate(terms))
    raise ValueError(f"The kernel has no term {term!r}. Pass one of its terms or its number: {shown}.")


def _prior_of_term(prior: PriorPaths, terms: list[Kernel], place: int) -> PriorPaths:
    """The prior functions of a term: its features and their weights."""
    parts = prior.features.terms
    counts = [_num_feature_terms(term) for term in terms]
    if sum(counts) != len(parts):
        raise ValueError(
            f"{len(parts)} terms of features cannot be told apart for the {len(terms)} terms of the kernel."
        )
    first = sum(counts[:place])
    mine = parts[first : first + counts[place]]
    start = sum(part.num for part in parts[:first])
    return PriorPaths(SumFeatures(mine), prior.weights[start : start + sum(part.num for part in mine)])


def _num_feature_terms(kernel: Kernel) -> int:
    """How many terms the features of a kernel have; a product has all pairs."""
    if isinstance(kernel, Sum):
        return _num_feature_terms(kernel.left) + _num_feature_terms(kernel.right)
    if isinstance(kernel, Product):
        return _num_feature_terms(kernel.left) * _num_feature_terms(kernel.right)
    return _num_feature_terms(kernel.kernel) if isinstance(kernel, (Scale, View)) else 1
