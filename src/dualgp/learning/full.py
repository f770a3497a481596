"""Learning from all of the data, by pathwise gradients (pathwise.py).

The random functions (omega, w, epsilon) stay the same from step to step, so that the estimate is a smooth function of
the parameters and each solve starts where the last one ended.

Steps are Newton-like: the first by Fisher's information of a few neighbourhoods scaled up to all rows, then corrected
by what the gradient did (BFGS). A gradient with error covariance c * F costs about c * p / 2 nats in all, nothing
against n: so few samples and loose solves are enough.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dualgp._random import subkey
from dualgp._threads import one_blas_thread
from dualgp._types import Columns, RandomKey
from dualgp.learning.likelihood import NotDefinite, information
from dualgp.learning.method import Ending, Method, Outcome, Stage, Stop
from dualgp.learning.optimise import QuasiNewton
from dualgp.learning.parameters import Vector
from dualgp.learning.pathwise import measure_seconds, pathwise_gradient
from dualgp.learning.problem import Problem
from dualgp.learning.rows import Rows
from dualgp.learning.subset import neighbour_groups
from dualgp.learning.vecchia import Best, Neighbours
from dualgp.operators import policy
from dualgp.operators.merging import num_repeats
from dualgp.posterior import Posterior
from dualgp.solvers import BlockDescent, Result

LEARN_SHARE = 0.6  # with a time limit: the last solve, of about five passes, has the rest
START_SHARE = 0.5  # with a time limit: the largest fraction of the time for learning that `Neighbours` takes
SOLVE_AND_GRADIENT = 2.0  # the time of a step relative to a gradient: no step begins with less time left
# The relative residual of each step's solve. On protein its error costs 2e-4 nats a point in the next step; 0.2 costs
# 1e-3, as much as a step that is worth taking gains.
LOOSE = 0.1
# Neighbourhoods for the first curvature: 2,048 rows know it to a few per cent, and BFGS corrects it from then on.
INFORMATION_GROUPS, INFORMATION_SIZE = 8, 256
LEAST_INFORMATION = 1e-4  # a row: parameters that the data do not determine move slowly


@dataclass(frozen=True)
class FullData(Method):
    """Climb the likelihood of all rows by pathwise gradients, from where `Neighbours` ends.

    **Arguments:**

    - `num_steps`: at most. `gain`: stop once the next step promises less than this many nats a point.
    - `passes`: for each step's solve, which starts from the last one's weights. `num_samples`: for the gradient.

    A gradient uses all rows. A fifth of them does not suffice: with 100,000 rows drawn from a known model it led from
    the true lengthscales to lengthscales a fifth as long.
    """

    stage: ClassVar[str] = "all rows"
    num_steps: int = 12
    gain: float = 1e-3
    passes: float = 3.0
    num_samples: int = 16

    def run(self, problem: Problem, key: RandomKey) -> Outcome:
        best = Best(problem, problem.parameters.start)
        with Stage() as stage:
            self._learn(best, key)
        is_over = stage.ending is Ending.INTERRUPTED
        learned = replace(best.problem, deadline=problem.deadline, span=problem.span)  # which covers the last solve
        posterior = None if is_over else _solve_last(learned, best.vector, key)
        return Outcome(learned, best.vector, stage.ending, posterior, best.choice)

    def _learn(self, best: Best, key: RandomKey) -> None:
        """Increase the likelihood of `best`, which at any time is the best so far."""
        problem = best.problem.within(LEARN_SHARE)
        problem.check_time()
        seconds = self._measure_step(problem, best.vector)
        has_time = seconds < (1.0 - START_SHARE) * problem.deadline.left
        _start_from_neighbours(problem.within(START_SHARE if has_time else 1.0), best, subkey(key, "neighbours"))
        problem = replace(best.problem, deadline=problem.deadline, span=problem.part(0.3, 1.0).span)
        if seconds > problem.deadline.left:
            raise Stop(Ending.TIMED_OUT)
        inverse = _inverse_information(problem, best.vector, subkey(key, "information"))
        self._climb(problem, best, QuasiNewton(problem.bounds, inverse), key)

    def _measure_step(self, problem: Problem, vector: Vector) -> float:
        """Seconds of a solve and a gradient; 0 without a time limit."""
        if not problem.deadline.is_set:
            return 0.0
        columns = problem.y.shape[1] + self.num_samples
        return SOLVE_AND_GRADIENT * measure_seconds(problem.parameters, vector, problem.x, columns)

    def _climb(self, problem: Problem, best: Best, newton: QuasiNewton, key: RandomKey) -> None:
        vector, passes, total, most = best.vector, 0.0, 0.0, 0.0
        for number in range(self.num_steps):
            diverged, more, *slopes = problem.file.once(vector, partial(self._step, problem, vector, key))
            if diverged:  # hardly any noise: back to where it could be solved
                problem.file.weights = None
                return
            gained, goal, promise = newton.advance(vector, np.array(slopes) - problem.penalty(vector)[1])
            total, passes = total + gained, passes + more
            if total >= most:
                best.vector, most = vector, total
            problem.note(self.stage, total / problem.n, vector, (number + 1) / self.num_steps, passes)
            if promise / problem.n < self.gain:
                return
            problem.check_time()
            vector = goal

    def _step(self, problem: Problem, vector: Vector, key: RandomKey) -> np.ndarray:
        """Whether the solve diverged, the passes that it took, and the gradient."""
        posterior = self._solve(problem, vector, problem.file.weights, key)
        if posterior.solution.result is Result.DIVERGED:
            return np.append([1.0, 0.0], np.zeros_like(vector))
        problem.file.weights = posterior.weights
        gradient = pathwise_gradient(problem.parameters, vector, posterior, problem.terms, problem.check_time)
        return np.append([0.0, posterior.solution.passes], gradient)

    def _solve(self, problem: Problem, vector: Vector, weights: Columns | None, key: RandomKey) -> Posterior:
        """A solve that is accurate enough for a gradient."""
        is_small, mesh = problem.n <= policy.SOLVE_EXACTLY_UP_TO, problem.last_solve.mesh
        solver = "auto" if is_small else BlockDescent(tol=LOOSE, max_passes=self.passes)
        settings = {
            "solver": solver,
            "num_samples": self.num_samples,
            "mesh": mesh,
            "merge": False,
            "num_far": problem.n,
            "neighbours": 0,
        }
        posterior = _condition(problem, problem.rows, vector, weights, key, settings).gathered()
        if posterior.solution.result is Result.INTERRUPTED:
            raise Stop(Ending.INTERRUPTED)
        return posterior


def _start_from_neighbours(problem: Problem, best: Best, key: RandomKey) -> None:
    """Start from the result of `Neighbours`, even if it runs out of time."""
    found = Neighbours().run(problem.part(0.0, 0.3), key)
    best.problem, best.vector, best.choice = replace(found.problem, span=problem.span), found.vector, found.choice
    if found.ending in (Ending.STOPPED, Ending.INTERRUPTED):
        raise Stop(found.ending)


def _solve_last(problem: Problem, vector: Vector, key: RandomKey) -> Posterior:
    """The posterior of the learned model, to the user's tolerance, starting from the weights of the last step."""
    settings = {**problem.last_solve._asdict(), "checkpoint": problem.file.solve_path}
    rows, weights = problem.given_rows, problem.file.weights
    if weights is not None and len(weights) != len(rows.x) - num_repeats(rows.x):
        weights = None  # equal inputs with different known variances are merged for the last solve only
    return _condition(problem, rows, vector, weights, key, settings)


def _condition(
    problem: Problem, rows: Rows, vector: Vector, weights: Columns | None, key: RandomKey, settings: dict[str, Any]
) -> Posterior:
    """Condition with the same key in every step, and so with the same random functions."""
    start = None if weights is None else weights[:, : rows.y.shape[1] + settings["num_samples"]]
    run: dict[str, Any] = {"key": subkey(key, "condition"), "start": start, "max_seconds": problem.deadline}
    model = problem.parameters.model(vector)
    return model.condition(rows.x, rows.y, noise=rows.variances(model.noise), **run, **settings)


def _inverse_information(problem: Problem, vector: Vector, key: RandomKey) -> Float[np.ndarray, "free free"]:
    groups = neighbour_groups(problem, vector, INFORMATION_GROUPS, INFORMATION_SIZE, key)
    num_rows = sum(len(group.y) for group in groups)
    try:
        with one_blas_thread(INFORMATION_SIZE):
            total = sum(information(problem.parameters, vector, group) for group in groups) * (problem.n / num_rows)
    except NotDefinite:  # hardly any noise: as if every row said something about every parameter
        total = np.eye(len(vector)) * problem.n
    return np.linalg.inv(total + np.diag(problem.penalty.spread**-2.0 + LEAST_INFORMATION * problem.n))
