"""Learning from random points given their neighbours: a few terms of Vecchia's likelihood.

In any order of the data, log p(y) = sum_i log p(y_i | y_1 ... y_{i-1}). What came before matters through the nearest
of it (Vecchia 1988), and a random sample of the terms of a random order estimates the sum: coarse and fine scales, and
the noise, in the proportions in which the likelihood of all rows has them. The scores of the terms are uncorrelated, so
that 2,048 of n terms cost about n / 2,048 * p / 2 nats of the best likelihood with p parameters, all rows together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from dualgp._arrays import in_wide
from dualgp._random import generator, subkey
from dualgp._threads import one_blas_thread
from dualgp._types import AnyArray, Points, RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning.likelihood import NotDefinite
from dualgp.learning.method import Method, Outcome, Stage
from dualgp.learning.optimise import Search
from dualgp.learning.parameters import Parameters, Vector
from dualgp.learning.problem import Problem

TERMS_AT_ONCE = 256  # an evaluation of as many takes 7 ms: the clock is looked at in between
SEARCH_ENTRIES = 1 << 22  # distances at once: the search among 500,000 rows takes 1.5 s, with 2^27 of them 5.9
OFF_SCALE = 1.0  # nats a term: a model for standardised y on y in the thousands is worse by more than that


class Terms(NamedTuple):
    """Points, each the last of its own row, after its neighbours."""

    x: Float[np.ndarray, "terms m d"] | UInt8[np.ndarray, "terms m d"]
    y: Float[np.ndarray, "terms m"]


@dataclass(frozen=True)
class Neighbours(Method):
    """Maximise the likelihood of random points given their nearest among a random number of others.

    **Arguments:**

    - `num_terms` (rounded up to a multiple of 256), `num_neighbours`: a step costs num_terms * num_neighbours^3.
    - `rounds`: neighbours are found anew by the lengthscales of the last round. `num_steps`: at most, in each.
    """

    num_terms: int = 2048
    num_neighbours: int = 32
    rounds: int = 2
    num_steps: int = 25

    def run(self, problem: Problem, key: RandomKey) -> Outcome:
        search = Search(problem, likelihood_and_gradient, [], problem.parameters.start)
        with one_blas_thread(self.num_neighbours), Stage() as stage:
            # A copy of a record is not a second measurement of it: it would say that there is no noise.
            rows = first_of_each(problem.x, problem.y)
            for number in range(self.rounds):
                round_key = subkey(key, "round", number)
                terms = find_terms(problem, search.best, rows, self.num_terms, self.num_neighbours, round_key)
                search = Search(problem, likelihood_and_gradient, terms, search.best)
                search.climb(nearer_the_data(search), "neighbours", self.num_steps)
        return Outcome(search.best, stage.ending)


def first_of_each(x: np.ndarray, y: np.ndarray) -> Int[np.ndarray, " unique"]:
    """The first of the rows that are equal in x and y, told by a 64-bit sum: sorting whole rows takes minutes."""
    odd = np.random.default_rng(0).integers(0, 2**63, x.shape[1] + 1, np.uint64) * 2 + 1
    key = (y.astype(np.float64) + 0.0).view(np.uint64) * odd[-1]  # adding zero turns -0.0 into 0.0
    for column, factor in enumerate(odd[:-1]):
        bits = (x[:, column].astype(np.float64) + 0.0).view(np.uint64)
        key = key + (bits ^ (bits >> 29)) * factor  # the low bits of most numbers are zeros
    return np.unique(key, return_index=True)[1]


def nearer_the_data(search: Search) -> Vector:
    """The start, unless parameters of the data's own scale are better by more than OFF_SCALE."""
    start, typical = search.best, search.problem.typical
    value, other = (search.evaluate(vector)[0] for vector in (start, typical))
    return typical if other > value + OFF_SCALE else start


@in_wide
def find_terms(
    problem: Problem, vector: Vector, rows: Int[np.ndarray, " rows"], num: int, num_neighbours: int, key: RandomKey
) -> list[Terms]:
    """Random points of a random order of `rows`, each with the nearest of those before it, in parts of equal shape."""
    rng, num_neighbours = generator(key), min(num_neighbours, len(rows) - 1)
    rows = rows[rng.permutation(len(rows))]
    coordinates = np.asarray(problem.parameters.model(vector).kernel.coordinates(problem.x[rows]), np.float32)
    coordinates = coordinates - coordinates.mean(axis=0)
    num_parts = -(-num // TERMS_AT_ONCE)
    places = np.sort(num_neighbours + rng.choice(len(rows) - num_neighbours, num_parts * TERMS_AT_ONCE))
    near = find_nearest_before(coordinates, places, num_neighbours, problem.check_time)
    index = rows[np.concatenate([near, places[:, None]], axis=1)]
    return [Terms(problem.x[part], problem.y[part].astype(np.float64)) for part in np.split(index, num_parts)]


def find_nearest_before(
    coordinates: Float[np.ndarray, "n c"], places: Int[np.ndarray, " terms"], num: int, check_time: Callable[[], Any]
) -> Int[np.ndarray, "terms num"]:
    """For each of the sorted `places` the rows of the `num` nearest points before it."""
    norms = np.einsum("ij,ij->i", coordinates, coordinates)
    found, at_once = [], max(1, SEARCH_ENTRIES // len(norms))
    for some in np.split(places, range(at_once, len(places), at_once)):
        check_time()
        first, last = some[0], some[-1]
        squared = norms[:last] - 2.0 * coordinates[some] @ coordinates[:last].T
        squared[:, first:][np.arange(first, last) >= some[:, None]] = np.inf
        found.append(np.argpartition(squared, num - 1, axis=1)[:, :num].copy())  # a view would keep all
    return np.concatenate(found)


@in_wide
def likelihood_and_gradient(parameters: Parameters, vector: Vector, terms: Terms) -> tuple[float, Vector]:
    """The sum of log p(point | its neighbours) over the terms, and its derivatives in the vector."""
    value, gradient = _sum(parameters, jnp.asarray(vector), terms)
    if not math.isfinite(value):
        raise NotDefinite
    return float(value), np.asarray(gradient)


@eqx.filter_jit
def _sum(parameters: Parameters, vector: AnyArray, terms: Terms) -> tuple[Array, Array]:
    def term(model: GaussianProcess, x: Points, y: Float[Array, " m"]) -> Float[Array, ""]:
        """log p(y[-1] | y[:-1]): the last rows of L and of L^-1 (y - mean) are the last conditional's."""
        x = x.astype(y.dtype)
        factor = jnp.linalg.cholesky(model.kernel(x, x) + model.noise * jnp.eye(x.shape[0], dtype=x.dtype))
        whitened = jax.scipy.linalg.solve_triangular(factor, y - model.mean, lower=True)
        return -0.5 * whitened[-1] ** 2 - jnp.log(factor[-1, -1]) - 0.5 * math.log(2 * math.pi)

    x, y = map(jnp.asarray, terms)
    each = jax.vmap(term, (None, 0, 0))
    return jax.value_and_grad(lambda vector: jnp.sum(each(parameters.model(vector), x, y)))(vector)
