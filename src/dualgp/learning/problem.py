"""What every way of learning shares: data, parameters, priors, the box they live in, and one optimiser."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dualgp._types import Columns
from dualgp.checkpoints import Checkpoint
from dualgp.gp import GaussianProcess
from dualgp.learning.likelihood import NotDefinite
from dualgp.learning.parameters import LEAST_NOISE, LIMIT, Parameters
from dualgp.learning.priors import DEFAULT_PRIORS, LogNormal, Penalty, penalty

Vector = Float[np.ndarray, " free"]
LEARNED = "learned"  # the stage after which only the last solve is left
Objective = Callable[[Vector], tuple[float, Vector]]  # value and gradient


@dataclass(frozen=True)
class Step:
    """One step of learning: where it was, how good that is and what it took so far.

    `value` is the log likelihood (less the priors' penalty) for each point of what was looked at: all rows, some
    neighbourhoods, or for full data an estimate of the gain since the start.
    """

    stage: str
    value: float
    model: GaussianProcess
    seconds: float
    passes: float


class Notebook:
    """Where learning is, in a file, so that a run that was killed goes on instead of starting anew."""

    def __init__(self, path: str | os.PathLike, problem: Any) -> None:
        self.file = Checkpoint(path, problem)
        self.solve_path = f"{path}.solve"  # the last solve has a checkpoint of its own
        self.stage, self.vector = "", np.zeros(0)
        self.weights: Columns | None = None
        if (saved := self.file.load((np.zeros(0), np.zeros((0, 0))))) is not None:
            (vector, weights), progress = saved
            self.stage, self.vector, self.weights = progress["stage"], np.asarray(vector), np.asarray(weights)
            if self.stage != LEARNED:  # there will be another last solve
                Path(self.solve_path).unlink(missing_ok=True)

    def write(self, stage: str, vector: Vector, weights: Columns) -> None:
        """Save where learning is."""
        self.file.save((vector, np.asarray(weights)), {"stage": stage})

    def close(self) -> None:
        """All is done: nothing is left to go on with."""
        self.file.path.unlink(missing_ok=True)
        Path(self.solve_path).unlink(missing_ok=True)


@dataclass
class Problem:
    """Data and model, and what has been done so far."""

    x: np.ndarray
    y: np.ndarray
    parameters: Parameters
    penalty: Penalty
    typical: Vector  # parameters of the size that the data suggest, whatever the model starts from
    bounds: Float[np.ndarray, "free 2"]
    max_seconds: float | None
    report: Callable[[Step], Any]
    notebook: Notebook | None = None
    history: list[Step] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    interrupted: bool = False  # by Ctrl-C: return at once
    timed_out: bool = False
    is_enough: bool = False  # says whoever watches: learn no more, but finish

    @property
    def n(self) -> int:
        """The number of points."""
        return len(self.y)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self.began

    def is_over(self, share: float = 1.0) -> bool:
        """Whether this share of the time has passed, or the user wants no more."""
        is_late = self.max_seconds is not None and self.seconds > share * self.max_seconds
        self.timed_out |= is_late
        return self.interrupted or self.is_enough or is_late

    def seconds_left(self, share: float = 1.0) -> float | None:
        """Of this share of the time: at least a moment, or None for no limit."""
        return None if self.max_seconds is None else max(share * self.max_seconds - self.seconds, 1e-3)

    def note(
        self, stage: str, value: float, vector: Vector, passes: float = 0.0, weights: Columns | None = None
    ) -> None:
        """Remember and show a step."""
        step = Step(stage, value, self.parameters.model(vector), self.seconds, passes)
        self.history.append(step)
        if self.notebook is not None and weights is not None:  # earlier stages are quick to repeat
            self.notebook.write(stage, vector, weights)
        if self.report(step) is True:
            self.is_enough = True

    def clipped(self, vector: Vector) -> Vector:
        """The nearest vector in the box."""
        return np.clip(vector, self.bounds[:, 0], self.bounds[:, 1])


def make_problem(
    model: GaussianProcess,
    x: np.ndarray,
    y: np.ndarray,
    priors: Mapping[str, LogNormal] | None,
    fixed: Sequence[str],
    max_seconds: float | None,
    report: Callable[[Step], Any],
    notebook: Notebook | None = None,
) -> Problem:
    """The problem of learning `model` from data."""
    y_variance = float(np.var(y, dtype=np.float64))
    # Kernels on counts have no lengthscales, and the squares of a quarter of a million fingerprints take gigabytes.
    x_scale = np.ones(x.shape[1]) if x.dtype == np.uint8 else np.std(x, axis=0, dtype=np.float64)
    x_scale = np.where(x_scale > 0, x_scale, 1.0)
    parameters = Parameters(model, fixed, scale=math.sqrt(y_variance))
    start, sizes = parameters.start, penalty(parameters, DEFAULT_PRIORS, x_scale, y_variance)
    typical = np.where(np.isfinite(sizes.spread), sizes.centre, start)
    typical[parameters.is_mean] = float(np.mean(y, dtype=np.float64)) / parameters.scale
    bounds = np.stack([np.minimum(start, typical) - LIMIT, np.maximum(start, typical) + LIMIT], axis=1)
    for i, name in enumerate(parameters.names):
        if name == "noise":
            bounds[i, 0] = min(math.log(LEAST_NOISE * y_variance), start[i])
    prior = penalty(parameters, priors, x_scale, y_variance)
    return Problem(x, y, parameters, prior, typical, bounds, max_seconds, report, notebook)


def maximise(
    problem: Problem,
    objective: Objective,
    num_terms: int,
    start: Vector,
    stage: str,
    *,
    max_steps: int = 100,
    time_share: float = 1.0,
) -> tuple[Vector, float]:
    """L-BFGS on a log likelihood of `num_terms` rows and the priors; the best vector and its value for each row.

    Ctrl-C ends it, and what follows, with the best so far.
    """
    from scipy.optimize import minimize

    best: dict[str, Any] = {"value": -np.inf, "vector": start}

    def loss(vector: Vector) -> tuple[float, Vector]:
        prior, prior_gradient = problem.penalty(vector)
        try:
            value, gradient = objective(vector)
        except NotDefinite:  # the line search comes back nearer
            return 1e10, np.zeros_like(vector)
        value, gradient = (value - prior) / num_terms, (gradient - prior_gradient) / num_terms
        if value > best["value"]:
            best.update(value=value, vector=vector.copy())
        return -value, -gradient

    def after(vector: Vector) -> None:
        problem.note(stage, best["value"], best["vector"])
        if problem.is_over(time_share):
            raise StopIteration

    options = {"maxiter": max_steps, "ftol": 1e-7, "gtol": 1e-5}
    try:
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=problem.bounds, callback=after, options=options)
    except KeyboardInterrupt:
        problem.interrupted = True
    return best["vector"], best["value"]
