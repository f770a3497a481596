"""What a solver is, and what it answers."""

from __future__ import annotations

import enum
import os
import sys
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import in_wide, is_here
from dualgp._checks import as_float_array, check_finite, check_key, refuse_traced
from dualgp._types import AnyArray, Columns, RandomKey
from dualgp.operators import Operator


class Result(enum.Enum):
    """How a solve ended."""

    CONVERGED = "converged"
    BUDGET_REACHED = "budget reached"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"


class Trace(NamedTuple):
    """What happened, one entry per chunk of steps. `residual` is the running estimate, relative, one column each."""

    steps: np.ndarray
    passes: np.ndarray
    seconds: np.ndarray
    residual: np.ndarray


@dataclass(frozen=True)
class Solution:
    """The answer to A @ weights = b, and how good it is.

    - `weights`: the shape of b, and where b was.
    - `result`: converged, budget reached, diverged or interrupted; `message` says it in a sentence, with a remedy.
    - `residual`: ||b - A @ weights|| / ||b|| for each column, estimated on fresh rows of the returned weights;
      `residual_upper` is the upper end of its 95 % interval (equal to it where all rows were checked).
    - `passes`: kernel entries used, in units of n^2. `seconds`: wall-clock time, compilation included.
    - `solver`: the solver with every automatic setting filled in. `trace`: the running estimates.
    - `factor`: the Cholesky factor of A, where the solver made one. `state`: what another step would need.
    """

    weights: AnyArray = field(repr=False)
    result: Result
    message: str
    residual: np.ndarray = field(repr=False)
    residual_upper: np.ndarray = field(repr=False)
    steps: int
    passes: float
    seconds: float
    solver: Solver
    trace: Trace = field(repr=False)
    factor: np.ndarray | None = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Run:
    """What belongs to one run rather than to a solver: randomness, where to start, how long, what to show."""

    key: RandomKey | None
    start: Columns | None = None
    resume: Solution | None = None
    max_seconds: float | None = None
    max_passes: float | None = None
    checkpoint: str | os.PathLike | None = None
    progress: bool = False


class Solver(eqx.Module):
    """Solves A @ weights = b. Settings live in the solver, data in the call."""

    @property
    def takes_few_passes(self) -> bool:
        """Whether it looks at every entry of K only some five to ten times."""
        return False

    @abstractmethod
    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        """Solve for all columns of `b` (n, s)."""


class IterativeSolver(Solver):
    """A solver that improves an iterate step by step. Everything else (budgets, stopping, progress) is in loop.py."""

    tol: eqx.AbstractVar[float]

    # Times the smallest residual so far: beyond, it has diverged. Not settings: properties of the method.
    growth_limit: ClassVar[float] = 10.0
    # Passes in which the residual must fall by a tenth: otherwise rounding is in the way, and it gives up.
    patience: ClassVar[float] = 20.0
    # Whether a budget that is too short to converge is better spent on a part of the rows.
    takes_part: ClassVar[bool] = False
    # What to do about a run that ended early. Where weights are linear in b, bars are too wide then.
    if_unfinished: ClassVar[str] = "Give it more time (refine), or accept wider error bars."

    @abstractmethod
    def prepared(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[IterativeSolver, float]:
        """The solver with its automatic settings filled in, and the passes that took."""

    @abstractmethod
    def init(self, operator: Operator, b: Columns, start: Columns) -> Any:
        """The state before the first step: what the next step needs."""

    @abstractmethod
    def step(self, operator: Operator, b: Columns, state: Any, key: RandomKey) -> tuple[Any, Float[Array, " s"]]:
        """One step, and an estimate of ||b - A @ iterate||^2 for each column that it yields for free."""

    def renewed(self, operator: Operator, state: Any, step: int, key: RandomKey) -> tuple[Any, int]:
        """Work for the host before step number `step`: the state to go on from, and for how many steps it will do."""
        return state, sys.maxsize

    @abstractmethod
    def weights(self, state: Any) -> Columns:
        """What to return."""

    @abstractmethod
    def passes_per_step(self, n: int) -> float:
        """Kernel entries used by a step, in units of n^2."""

    @abstractmethod
    def max_steps(self, n: int) -> int:
        """The step budget."""

    @abstractmethod
    def slower(self) -> IterativeSolver | None:
        """A more careful version to go on with after divergence, or None where the user fixed the settings."""

    @abstractmethod
    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        """Why it diverged and what to do, as a sentence."""

    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        from dualgp.solvers.loop import iterate  # the loop knows this class

        return iterate(self, operator, b, run)


@in_wide
def solve(
    operator: Operator,
    b: Any,
    solver: Solver | str = "auto",
    *,
    key: RandomKey | None = None,
    start: Any = None,
    max_seconds: float | None = None,
    max_passes: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
) -> Solution:
    """Solve (K + noise * I) @ weights = b.

    **Arguments:**

    - `b`: one (n,) or many (n, s) right-hand sides, solved together.
    - `solver`: a solver such as `SDD()`, or "auto".
    - `key`: randomness; not needed by `Cholesky`.
    - `start`: weights to start from, in the shape of `b`; zeros by default. Or a `Solution` to go on with: by the same
      method it continues exactly where that ended, momentum and all, so that with the same key two halves are one run.
    - `max_seconds`, `max_passes`: stop there and return what there is. Ctrl-C does the same. Of more than 100,000 rows,
      block descent solves as many as the budget is enough for (part.py), and the message says so.
    - `checkpoint`: a file to save the state to now and then. The same call continues from it, and ends with the same
      weights as if it had never been interrupted. It is deleted on convergence.
    - `progress`: show a progress bar.
    """
    refuse_traced("solve", operator, b)
    solver = as_solver(solver)
    columns = _as_columns(b, operator, "b")
    resume, start = (start, start.weights) if isinstance(start, Solution) else (None, start)
    start = None if start is None else _as_columns(start, operator, "start")
    if start is not None and start.shape != columns.shape:
        raise ValueError(f"start has shape {start.shape}, but b has {columns.shape}. Pass weights in the shape of b.")
    for name, budget in (("max_seconds", max_seconds), ("max_passes", max_passes)):
        if budget is not None and not budget > 0:
            raise ValueError(f"{name} must be positive, got {budget!r}. Leave it out for no limit.")
    scale = _power_of_two_scale(columns)
    if (scale != 1).any():
        columns, start = columns / scale, None if start is None else start / scale
    run = Run(key, start, resume, max_seconds, max_passes, checkpoint, progress)
    solution = solver.run(operator, columns, run)
    weights = solution.weights * scale if (scale != 1).any() else solution.weights
    if operator.holds(weights) and not operator.holds(b):
        weights = operator.collect(weights)
    return replace(solution, weights=weights if np.ndim(b) == 2 else weights[:, 0])


def _power_of_two_scale(b: Columns) -> Float[np.ndarray, " s"]:
    """1 for columns of ordinary size; for others the power of two that makes them so, lest their squares overflow."""
    if is_here(b):
        columns = np.asarray(b)
        size = np.maximum(columns.max(axis=0, initial=0.0), -columns.min(axis=0, initial=0.0)).astype(np.float64)
    else:
        size = np.asarray(_sizes(b), np.float64)
    ordinary = (size == 0) | ((size > 1e-6) & (size < 1e6))
    return np.where(ordinary, 1.0, np.exp2(np.floor(np.log2(np.where(size > 0, size, 1.0))))).astype(b.dtype)


@eqx.filter_jit
def _sizes(b: Columns) -> Float[Array, " s"]:
    return jnp.max(jnp.abs(b), axis=0, initial=0.0)


def as_solver(solver: Solver | str) -> Solver:
    """The solver itself, or the automatic choice for "auto"."""
    from dualgp.solvers.auto import Auto  # chooses among the solvers, so it imports them

    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return Auto()
    raise TypeError(f"solver must be 'auto' or a solver such as SDD(), got {solver!r}.")


def require_key(run: Run, solver: Solver) -> RandomKey:
    """The run's key, or a sentence on how to make one."""
    return check_key(run.key, type(solver).__name__)


def check_tol(tol: float) -> None:
    """A tolerance is a share of the right-hand side's norm."""
    if not 0 <= tol < 1:
        raise ValueError(f"tol must be at least 0 and below 1, got {tol!r}: it is relative to the norm of b.")


def _as_columns(b: Any, operator: Operator, name: str) -> Columns:
    if operator.holds(b):
        return b
    array = as_float_array(b, name)
    if array.ndim not in (1, 2) or array.shape[0] != operator.n:
        raise ValueError(
            f"{name} has shape {array.shape}, but the operator has {operator.n} rows. Pass ({operator.n},) or "
            f"({operator.n}, columns)."
        )
    check_finite(array, name)
    return operator.place(array[:, None] if array.ndim == 1 else array)
