"""Learning from neighbourhoods: a few groups of near points, each with its exact likelihood.

Lin et al. (2023) fit each neighbourhood by itself and average the results; here that is `separately=True`. Together,
one model fits all of them, so that an input that is constant in one neighbourhood is learned from others.
"""

from dataclasses import dataclass

import numpy as np

from dualgp._arrays import in_wide
from dualgp._random import generator, subkey
from dualgp._threads import one_blas_thread
from dualgp._types import RandomKey
from dualgp.learning.likelihood import Group, as_group, likelihood_and_gradient
from dualgp.learning.method import Method, Outcome, Stage
from dualgp.learning.optimise import Search
from dualgp.learning.parameters import Vector
from dualgp.learning.problem import Problem


@dataclass(frozen=True)
class Subset(Method):
    """Maximise the likelihood of neighbourhoods of random points, each taken exactly.

    **Arguments:**

    - `num_groups`, `size`: how many neighbourhoods, and how many points in each. Cost: num_groups * size^3 a step.
    - `rounds`: neighbourhoods are chosen anew by the lengthscales that the last round found.
    - `separately`: fit each by itself and return the geometric mean, as in Lin et al. (2023), who used 10 of 10,000.
    """

    num_groups: int = 16
    size: int = 512
    rounds: int = 2
    separately: bool = False

    def run(self, problem: Problem, key: RandomKey) -> Outcome:
        start, searches = problem.parameters.start, list[Search]()
        with one_blas_thread(self.size), Stage() as stage:
            for number in range(1 if self.separately else self.rounds):
                start = _geometric_mean(searches, start)
                groups = neighbour_groups(problem, start, self.num_groups, self.size, subkey(key, "round", number))
                searches = []
                for pieces in [[group] for group in groups] if self.separately else [groups]:
                    searches.append(Search(problem, likelihood_and_gradient, pieces, start))
                    searches[-1].climb(start, "subset")
        return Outcome(problem, _geometric_mean(searches, start), stage.ending)


def _geometric_mean(searches: list[Search], start: Vector) -> Vector:
    """The mean of the best parameters, which are logarithms; without any search, the start."""
    return np.mean([search.best for search in searches], axis=0) if searches else start


@in_wide
def neighbour_groups(problem: Problem, vector: Vector, num: int, size: int, key: RandomKey) -> list[Group]:
    """Random points and their nearest neighbours, as the kernel measures distance."""
    kernel = problem.parameters.model(vector).kernel
    coordinates = np.asarray(kernel.coordinates(problem.x), np.float64)
    groups = []
    for centre in generator(key).choice(problem.n, min(num, problem.n), replace=False):
        problem.check_time()
        squared = ((coordinates - coordinates[centre]) ** 2).sum(axis=1)
        near = np.argpartition(squared, min(size, problem.n) - 1)[:size]
        terms = None if problem.terms is None else problem.terms.take(near)
        groups.append(as_group(problem.x[near], problem.y[near], terms))
    return groups
