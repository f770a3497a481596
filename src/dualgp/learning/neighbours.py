"""Learning from random points given their neighbours: a few terms of Vecchia's likelihood.

In any order of the data, log p(y) = sum_i log p(y_i | y_1 ... y_{i-1}). What came before matters through the nearest
of it (Vecchia 1988), and a random sample of the terms of a random order estimates the sum: coarse and fine scales, and
the noise, in the proportions in which the likelihood of all rows has them. The scores of the terms are uncorrelated, so
that 2,048 of n terms cost about n / 2,048 * p / 2 nats of the best likelihood with p parameters, all rows together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from dualgp._arrays import in_wide
from dualgp._checks import check_count
from dualgp._random import generator, subkeys
from dualgp._types import AnyArray, Points, RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning.likelihood import NotDefinite
from dualgp.learning.parameters import Parameters
from dualgp.learning.problem import Objective, Problem, Vector, maximise

TERMS_AT_ONCE = 256
OFF_SCALE = 1.0  # a model for standardised y on y in the thousands is worse than that, and far from any optimum
TIME_SHARE = 0.3  # where time is limited, the rest is left to learning from all rows


class Terms(NamedTuple):
    """Points, each the last of its own row, after its neighbours."""

    x: Float[np.ndarray, "terms m d"] | UInt8[np.ndarray, "terms m d"]
    y: Float[np.ndarray, "terms m"]


@dataclass(frozen=True)
class Neighbours:
    """Maximise the likelihood of random points given their nearest among a random number of others.

    **Arguments:**

    - `num_terms` (rounded up to a multiple of 256), `num_neighbours`: a step costs num_terms * num_neighbours^3.
    - `rounds`: neighbours are found anew by the lengthscales of the last round. `num_steps`: at most, in each.
    """

    num_terms: int = 2048
    num_neighbours: int = 32
    rounds: int = 2
    num_steps: int = 25

    def __post_init__(self) -> None:
        for name in ("num_terms", "num_neighbours", "rounds", "num_steps"):
            check_count(getattr(self, name), name, 1)

    def run(self, problem: Problem, key: RandomKey) -> Vector:
        """The vector of learned parameters."""
        vector = problem.parameters.start
        # A copy of a record is not a second measurement of it: it would say that there is no noise.
        first = first_of_each(problem.x, problem.y)
        x, y = problem.x[first], problem.y[first]
        for round_key in subkeys(key, self.rounds):
            model = problem.parameters.model(vector)
            terms = find_terms(model, x, y, self.num_terms, min(self.num_neighbours, len(y) - 1), round_key)
            objective = lambda vector, terms=terms: _likelihood(problem.parameters, vector, terms)  # noqa: E731
            num_terms = sum(len(part.y) for part in terms)
            vector = nearer_the_data(problem, objective, num_terms, vector)
            vector, _ = maximise(
                problem,
                objective,
                num_terms,
                vector,
                "neighbours",
                max_steps=self.num_steps,
                time_share=TIME_SHARE,
            )
            if problem.is_over(TIME_SHARE):
                break
        return vector


def first_of_each(x: np.ndarray, y: np.ndarray) -> Int[np.ndarray, " unique"]:
    """The first of the rows that are equal in x and y, told by a 64-bit sum: sorting whole rows takes minutes."""
    odd = np.random.default_rng(0).integers(0, 2**63, x.shape[1] + 1, np.uint64) * 2 + 1
    key = (y.astype(np.float64) + 0.0).view(np.uint64) * odd[-1]  # adding zero turns -0.0 into 0.0
    for column, factor in enumerate(odd[:-1]):
        bits = (x[:, column].astype(np.float64) + 0.0).view(np.uint64)
        key = key + (bits ^ (bits >> 29)) * factor  # the low bits of most numbers are zeros
    return np.unique(key, return_index=True)[1]


def nearer_the_data(problem: Problem, objective: Objective, num_terms: int, start: Vector) -> Vector:
    """The start, unless parameters of the data's own scale are better by more than OFF_SCALE nats a term."""
    values = []
    for vector in (start, problem.typical):
        try:
            values.append(objective(vector)[0] / num_terms)
        except NotDefinite:
            values.append(-np.inf)
    return problem.typical if values[1] > values[0] + OFF_SCALE else start


@in_wide
def find_terms(
    model: GaussianProcess, x: np.ndarray, y: np.ndarray, num: int, num_neighbours: int, key: RandomKey
) -> list[Terms]:
    """Random points of a random order, each with the nearest of those before it, in parts of equal shape."""
    rng = generator(key)
    order = rng.permutation(len(y))
    coordinates = np.asarray(model.kernel.coordinates(x), np.float32)[order]
    coordinates = coordinates - coordinates.mean(axis=0)
    norms = np.einsum("ij,ij->i", coordinates, coordinates)
    num_parts = -(-num // TERMS_AT_ONCE)
    # Places in the order, sorted: those before the last of a part are all that its terms have to look at.
    chosen = np.sort(num_neighbours + rng.choice(len(y) - num_neighbours, num_parts * TERMS_AT_ONCE))
    parts = []
    for places in np.split(chosen, num_parts):
        end = places[-1]
        squared = norms[:end] - 2.0 * coordinates[places] @ coordinates[:end].T
        squared[np.arange(end) >= places[:, None]] = np.inf
        near = np.argpartition(squared, num_neighbours - 1, axis=1)[:, :num_neighbours]
        index = order[np.concatenate([near, places[:, None]], axis=1)]
        parts.append(Terms(x[index], y[index].astype(np.float64)))
    return parts


def _likelihood(parameters: Parameters, vector: Vector, parts: list[Terms]) -> tuple[float, Vector]:
    results = [_value_and_gradient(parameters, vector, part) for part in parts]
    return sum(value for value, _ in results), sum(gradient for _, gradient in results)


@in_wide
def _value_and_gradient(parameters: Parameters, vector: Vector, terms: Terms) -> tuple[float, Vector]:
    value, gradient = _part(parameters, jnp.asarray(vector), terms)
    if not math.isfinite(value):
        raise NotDefinite
    return float(value), np.asarray(gradient)


@eqx.filter_jit
def _part(parameters: Parameters, vector: Float[AnyArray, " free"], terms: Terms) -> tuple[Array, Array]:
    def total(vector: Float[AnyArray, " free"]) -> Float[Array, ""]:
        model = parameters.model(vector)

        def term(x: Points, y: Float[Array, " m"]) -> Float[Array, ""]:
            """log p(y[-1] | y[:-1]): the last rows of L and of L^-1 (y - mean) are the last conditional's."""
            x = x.astype(y.dtype)
            factor = jnp.linalg.cholesky(model.kernel(x, x) + model.noise * jnp.eye(x.shape[0], dtype=x.dtype))
            whitened = jax.scipy.linalg.solve_triangular(factor, y - model.mean, lower=True)
            return -0.5 * whitened[-1] ** 2 - jnp.log(factor[-1, -1]) - 0.5 * math.log(2 * math.pi)

        return jnp.sum(jax.vmap(term)(jnp.asarray(terms.x), jnp.asarray(terms.y)))

    return jax.value_and_grad(total)(vector)
