"""The problem that a method solves: data, parameters, their priors and their box, and the deadline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dualgp.gp import GaussianProcess
from dualgp.learning.checkpoint import LearningFile
from dualgp.learning.method import Ending, Stop
from dualgp.learning.parameters import LEAST_NOISE, LIMIT, Parameters, Vector
from dualgp.learning.priors import DEFAULT_PRIORS, Penalty, Priors, penalty
from dualgp.learning.rows import RowNoise, Rows
from dualgp.operators import policy
from dualgp.solvers import Solver
from dualgp.solvers.stopping import Deadline

# Relative to the variance of y. On bike, whose target is a sum of two inputs, block descent converges with these
# (RMSE 0.005), and not with a variance of 10; left free, RBF had a noise of 1e-6 and a variance of 8e7.
SOLVABLE_NOISE, SOLVABLE_VARIANCE = 4e-5, 2.0


@dataclass(frozen=True)
class Step:
    """One step of learning: parameters, value and cost so far.

    `value` is the log likelihood (less the priors' penalty) for each point of the rows used: all rows, or some
    neighbourhoods; for full data an estimate of the gain since the start. `share` estimates how much of the work is
    done, from 0 to 1.
    """

    stage: str
    value: float
    model: GaussianProcess
    seconds: float
    passes: float
    share: float = 0.0


class LastSolve(NamedTuple):
    """Settings of the solve for the posterior that a method may end with."""

    solver: Solver | str = "auto"
    num_samples: int = 16
    mesh: Any = None
    progress: bool = False


@dataclass(frozen=True)
class Problem:
    """Data and model, the limits of learning, and the steps so far."""

    rows: Rows
    parameters: Parameters
    penalty: Penalty
    typical: Vector  # parameters on the scale of the data, independent of the start
    bounds: Float[np.ndarray, "free 2"]
    last_solve: LastSolve = field(default_factory=LastSolve)
    deadline: Deadline = field(default_factory=Deadline)
    file: LearningFile = field(default_factory=LearningFile)
    report: Callable[[Step], Any] = lambda step: None
    history: list[Step] = field(default_factory=list)
    span: tuple[float, float] = (0.0, 1.0)  # the fraction of the whole work, from and to
    name: str = ""  # the kernel
    rivals: Callable[[GaussianProcess], list[Problem]] | None = None  # makes problems with other kernels from a model
    given: Rows | None = None  # the rows before equal inputs were merged
    noise_unit: float = 1.0  # the usual factor of the noise

    @property
    def x(self) -> np.ndarray:
        """Inputs, all different."""
        return self.rows.x

    @property
    def y(self) -> Float[np.ndarray, "n k"]:
        """Targets."""
        return self.rows.y

    @property
    def terms(self) -> RowNoise | None:
        """The noise of the rows, if it is not the model's."""
        return self.rows.terms

    @property
    def given_rows(self) -> Rows:
        """The rows before equal inputs were merged."""
        return self.rows if self.given is None else self.given

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.y)

    def within(self, share: float) -> Problem:
        """The same problem for a first stage, which may take this share of the time."""
        return replace(self, deadline=self.deadline.share(share))

    def check_time(self) -> None:
        """End learning if the deadline has passed."""
        if self.deadline.is_over():
            raise Stop(Ending.TIMED_OUT)

    def part(self, begin: float, end: float) -> Problem:
        """The same problem for a stage that is this part of the work."""
        first, last = self.span
        return replace(self, span=(first + begin * (last - first), first + end * (last - first)))

    def note(self, stage: str, value: float, vector: Vector, share: float, passes: float = 0.0) -> None:
        """Record and report a step, after a `share` of this stage; end learning if its receiver returns True."""
        done = max(self.part(0.0, share).span[1], self.deadline.elapsed / self.deadline.seconds)
        step = Step(stage, value, self.parameters.model(vector), self.deadline.elapsed, passes, min(done, 1.0))
        self.history.append(step)
        self.file.save()
        if self.report(step) is True:
            raise Stop(Ending.STOPPED)


def make_problem(
    model: GaussianProcess,
    rows: Rows,
    priors: Priors,
    fixed: Sequence[str] = (),
    noise_unit: float = 1.0,
    **settings: Any,
) -> Problem:
    """The problem of learning `model` from data; `settings` are further fields of `Problem`."""
    y_variance, x_scale, n = rows.y_variance, _input_scales(rows.x), len(rows.y)
    parameters = Parameters(model, fixed, scale=math.sqrt(y_variance))
    believe = partial(penalty, parameters, x_scale=x_scale, y_variance=y_variance, noise_unit=noise_unit)
    sizes = believe(DEFAULT_PRIORS)
    typical = np.where(np.isfinite(sizes.spread), sizes.centre, parameters.start)
    means = np.broadcast_to(rows.y.mean(axis=0) if np.ndim(model.mean) else rows.y.mean(), np.shape(model.mean)).ravel()
    typical[parameters.is_mean] = means[: parameters.is_mean.sum()] / parameters.scale
    bounds = _box(parameters, typical, y_variance, noise_unit, n > policy.SOLVE_EXACTLY_UP_TO)
    return Problem(rows, parameters, believe(priors), typical, bounds, noise_unit=noise_unit, **settings)


def _input_scales(x: np.ndarray) -> Float[np.ndarray, " d"]:
    """The standard deviation of each column; 1 for constants and counts."""
    # Kernels on counts have no lengthscales, and the squares of a quarter of a million fingerprints take gigabytes.
    if x.dtype == np.uint8:
        return np.ones(x.shape[1])
    # Rounding makes the standard deviation of a constant 1e-17.
    return np.where(np.ptp(x, axis=0) > 0, np.std(x, axis=0, dtype=np.float64), 1.0)


def _box(
    parameters: Parameters, typical: Vector, y_variance: float, noise_unit: float, by_iterations: bool
) -> Float[np.ndarray, "free 2"]:
    """LIMIT around the start and the scale of the data; the noise is at least LEAST_NOISE, or its start.

    If equations will be solved by iterations, variances and noise stay where these converge.
    """
    start = parameters.start
    box = np.stack([np.minimum(start, typical) - LIMIT, np.maximum(start, typical) + LIMIT], axis=1)
    is_noise = np.array([name == "noise" for name in parameters.names], bool)
    box[is_noise, 0] = np.minimum(
        math.log((SOLVABLE_NOISE if by_iterations else LEAST_NOISE) * y_variance / noise_unit), start[is_noise]
    )
    if by_iterations:
        is_variance = np.array([name.endswith("variance") for name in parameters.names], bool)
        box[is_variance, 1] = np.maximum(math.log(SOLVABLE_VARIANCE * y_variance), start[is_variance])
    return box
