"""Learning from neighbourhoods: a few groups of near points, each with its exact likelihood.

Lin et al. (2023) fit each neighbourhood by itself and average the results; here that is `separately=True`. Together,
one model has to explain all of them: what one neighbourhood cannot tell (an input that is constant in it) others can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualgp._arrays import in_wide
from dualgp._checks import check_count
from dualgp._random import generator, subkeys
from dualgp._types import RandomKey
from dualgp.learning.likelihood import Group, as_group, likelihood_and_gradient
from dualgp.learning.problem import Problem, Vector, maximise


@dataclass(frozen=True)
class Subset:
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

    def __post_init__(self) -> None:
        for name in ("num_groups", "size", "rounds"):
            check_count(getattr(self, name), name, 1)

    def run(self, problem: Problem, key: RandomKey) -> Vector:
        """The vector of learned parameters."""
        vector = problem.parameters.start
        for round_key in subkeys(key, self.rounds):
            groups = neighbour_groups(problem, vector, self.num_groups, self.size, round_key)
            if self.separately:
                return np.mean([self._fit(problem, [group], vector) for group in groups], axis=0)
            vector = self._fit(problem, groups, vector)
            if problem.is_over():
                break
        return vector

    def _fit(self, problem: Problem, groups: list[Group], start: Vector) -> Vector:
        objective = lambda vector: likelihood_and_gradient(problem.parameters, vector, groups)  # noqa: E731
        return maximise(problem, objective, sum(len(group.y) for group in groups), start, "subset")[0]


@in_wide
def neighbour_groups(problem: Problem, vector: Vector, num: int, size: int, key: RandomKey) -> list[Group]:
    """Random points and their nearest neighbours, as the kernel measures distance."""
    kernel = problem.parameters.model(vector).kernel
    coordinates = np.asarray(kernel.coordinates(problem.x), np.float64)
    centres = generator(key).choice(problem.n, min(num, problem.n), replace=False)
    groups = []
    for centre in centres:
        squared = ((coordinates - coordinates[centre]) ** 2).sum(axis=1)
        near = np.argpartition(squared, min(size, problem.n) - 1)[:size]
        groups.append(as_group(problem.x[near], problem.y[near]))
    return groups
