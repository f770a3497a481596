"""Two optimisers: L-BFGS for likelihoods that can be evaluated, quasi-Newton steps for those known by a gradient."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from dualgp._threads import num_cores
from dualgp.learning.likelihood import NotDefinite
from dualgp.learning.parameters import Parameters, Vector
from dualgp.learning.problem import Problem

# L-BFGS stops when a step gains 1e-7 of the value, or when a point's gradient is below 1e-5. Both are far below the
# 1e-3 nats a point from which `FullData` calls a gain worth a step.
TOLERANCES = {"ftol": 1e-7, "gtol": 1e-5}
NOT_DEFINITE = -1e10  # the value if a covariance has no factor: the line search then shortens its step
LONGEST_STEP = 1.2  # in logarithms, so that no parameter changes by more than a factor of 3.3 in a step
USUAL_STEPS = 30  # for the progress bar: L-BFGS takes about so many
LEAST_CURVATURE = 1e-3  # relative to the slope: steps with less curvature do not update it


@dataclass
class Search:
    """The search for the maximum of a log likelihood, less the priors' penalty, that is a sum over pieces of the data.

    `term` gives value and gradient of a piece's log likelihood. `best` is the best vector that was evaluated so far,
    and before that where the search starts; `value` is its value for each row.
    """

    problem: Problem
    term: Callable[[Parameters, Vector, Any], tuple[float, Vector]]
    pieces: Sequence[Any]
    best: Vector
    value: float = -math.inf
    first: float = math.nan  # the value where it started

    @property
    def num_rows(self) -> int:
        """The number of rows whose likelihood this is."""
        return sum(piece.num_rows for piece in self.pieces)

    def evaluate(self, vector: Vector) -> tuple[float, Vector]:
        """Value and gradient for each row, or those of the run that this one resumes."""
        label = (self.num_rows, float(self.pieces[0].y.sum()))
        numbers = self.problem.file.once((*label, *vector), lambda: self._add_up(vector))
        value, gradient = float(numbers[0]), numbers[1:]
        self.first = value if math.isnan(self.first) else self.first
        if value > self.value:
            self.best, self.value = vector.copy(), value
        return value, gradient

    def _add_up(self, vector: Vector) -> np.ndarray:
        """Value and gradient in one array. The deadline is checked between pieces."""
        penalty, slope = self.problem.penalty(vector)
        value, gradient = -penalty, -slope
        for piece in self.pieces:
            self.problem.check_time()
            try:
                more, slope = self.term(self.problem.parameters, vector, piece)
            except NotDefinite:
                return np.append(NOT_DEFINITE, np.zeros_like(vector))
            value, gradient = value + more, gradient + slope
        return np.append(value, gradient) / self.num_rows

    def climb(self, start: Vector, stage: str, max_steps: int = 100) -> None:
        """L-BFGS from `start`."""
        steps = itertools.count(1)

        def note(_: Vector) -> None:
            share = min(1.0, next(steps) / min(max_steps, USUAL_STEPS))
            self.problem.note(stage, self.value, self.best, share)

        options = {"maxiter": max_steps, **TOLERANCES}
        loss = lambda vector: tuple(-part for part in self.evaluate(vector))  # noqa: E731
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=self.problem.bounds, callback=note, options=options)


def compile_together(problems: Iterable[Problem], terms: Iterable[tuple[Callable, Sequence[Any]]]) -> None:
    """Compile every term with every problem's kernel, side by side where there are cores: 1.6 s of one for a kernel."""

    def compile_one(call: tuple[Problem, tuple[Callable, Sequence[Any]]]) -> None:
        problem, (term, pieces) = call
        with suppress(NotDefinite):
            term(problem.parameters, problem.parameters.start, pieces[0])

    if num_cores() > 1:
        with ThreadPoolExecutor(num_cores()) as pool:
            list(pool.map(compile_one, itertools.product(problems, [call for call in terms if call[1]])))


class QuasiNewton:
    """Quasi-Newton ascent in a box, from a given inverse curvature that changes of the gradient correct (BFGS)."""

    def __init__(self, bounds: Float[np.ndarray, "free 2"], inverse: Float[np.ndarray, "free free"]) -> None:
        self.bounds, self.inverse = bounds, inverse
        self.last: tuple[Vector, Vector] | None = None

    def advance(self, vector: Vector, gradient: Vector) -> tuple[float, Vector, float]:
        """From the gradient at a point: the gain since the last point, the next point, and the gain expected there."""
        gained = 0.0 if self.last is None else self._update(*self.last, vector, gradient)
        self.last = (vector, gradient)
        step = self.inverse @ gradient
        step = step * min(1.0, LONGEST_STEP / max(float(np.max(np.abs(step), initial=0.0)), 1e-300))
        goal = np.clip(vector + step, *self.bounds.T)
        return gained, goal, 0.5 * float((goal - vector) @ gradient)

    def _update(self, vector_before: Vector, gradient_before: Vector, vector: Vector, gradient: Vector) -> float:
        """Correct the inverse curvature; the gain of the step by the trapezium rule."""
        step, change = vector - vector_before, gradient_before - gradient
        curvature = step @ change
        if curvature > LEAST_CURVATURE * abs(step @ gradient_before):  # else it is not concave along the step
            left = np.eye(len(step)) - np.outer(step, change) / curvature
            self.inverse = left @ self.inverse @ left.T + np.outer(step, step) / curvature
        return 0.5 * float(step @ (gradient_before + gradient))
