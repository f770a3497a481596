"""Learning with the exact likelihood of all rows."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualgp._random import generator, subkey
from dualgp._threads import one_blas_thread
from dualgp._types import RandomKey
from dualgp.learning.candidates import pick
from dualgp.learning.likelihood import as_group, likelihood_and_gradient
from dualgp.learning.method import Method, Outcome, Stage
from dualgp.learning.optimise import Search, compile_together
from dualgp.learning.problem import Problem

SPREAD_OF_STARTS = 1.0  # in logarithms: most starts are within a factor of 3 of what the data's scale suggests


@dataclass(frozen=True)
class Exact(Method):
    """Maximise the exact likelihood of all rows by L-BFGS, n^3 operations a step.

    `num_starts`: the first is the model itself, the others are random around what the data's scale suggests; the best
    wins.
    """

    needs_key: ClassVar[bool] = False
    num_starts: int = 3

    def run(self, problem: Problem, key: RandomKey) -> Outcome:
        pieces = [as_group(*problem.rows)]
        search = Search(problem, likelihood_and_gradient, pieces, problem.parameters.start)
        random = generator(subkey(key, "starts")).standard_normal((self.num_starts - 1, len(search.best)))
        best, choice = search, None
        with one_blas_thread(problem.n), Stage() as stage:
            for number, start in enumerate((search.best, *(problem.typical + SPREAD_OF_STARTS * random))):
                search.problem = problem.part(0.5 * number / self.num_starts, 0.5 * (number + 1) / self.num_starts)
                search.climb(np.clip(start, *problem.bounds.T), "exact")
            searches = {problem.name: search}
            rivals = problem.rivals(problem.parameters.model(search.best)) if problem.rivals else []
            compile_together(rivals, [(likelihood_and_gradient, pieces)])
            for rival in rivals:
                part = rival.part(0.35 + 0.15 * len(searches), 0.5 + 0.15 * len(searches))
                other = searches[rival.name] = Search(part, likelihood_and_gradient, pieces, rival.parameters.start)
                other.climb(other.best, "exact")
            choice = pick({name: other.value for name, other in searches.items()}) if len(searches) > 1 else None
            best = searches[choice.chosen] if choice else search
        return Outcome(best.problem, best.best, stage.ending, choice=choice)
