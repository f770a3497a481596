"""Learning with the exact likelihood of all rows."""

from __future__ import annotations

from dataclasses import dataclass

from dualgp._checks import check_count
from dualgp._random import generator
from dualgp._types import RandomKey
from dualgp.learning.likelihood import as_group, likelihood_and_gradient
from dualgp.learning.problem import Problem, Vector, maximise

SPREAD_OF_STARTS = 1.0  # in logarithms


@dataclass(frozen=True)
class Exact:
    """Maximise the exact likelihood of all rows by L-BFGS, n^3 operations a step.

    `num_starts`: the first is the model itself, the others are random around what the data's scale suggests; the best
    wins.
    """

    num_starts: int = 3

    def __post_init__(self) -> None:
        check_count(self.num_starts, "num_starts", 1)

    def run(self, problem: Problem, key: RandomKey) -> Vector:
        """The vector of learned parameters."""
        group = as_group(problem.x, problem.y)
        objective = lambda vector: likelihood_and_gradient(problem.parameters, vector, [group])  # noqa: E731
        shape = (self.num_starts - 1, len(problem.typical))
        others = problem.typical + SPREAD_OF_STARTS * generator(key).standard_normal(shape)
        ends = []
        for start in (problem.parameters.start, *others):
            ends.append(maximise(problem, objective, problem.n, problem.clipped(start), "exact"))
            if problem.is_over():
                break
        return max(ends, key=lambda end: end[1])[0]
