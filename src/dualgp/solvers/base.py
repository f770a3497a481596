"""The interfaces: a solver (public settings), a prepared solver (a value for each setting), and a Solution."""

from __future__ import annotations

import enum
import os
import sys
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dualgp._checks import check_number, check_positive_number, check_share
from dualgp._types import AnyArray, Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.stopping import Deadline, Rules
from dualgp.solvers.validation import Score, Validation

PerColumn = Float[Array, " s"]  # a number for each right-hand side


class Result(enum.Enum):
    """How a solve ended. `STALLED`: rounding prevents progress."""

    CONVERGED = "converged"
    BUDGET_REACHED = "budget reached"
    STALLED = "stalled"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"


class DivergenceWarning(RuntimeWarning):
    """The solver diverged, so that weights are far from the solution."""


class Trace(NamedTuple):
    """The history, one entry per chunk of steps. `residual` has the running relative estimates of all columns."""

    steps: np.ndarray
    passes: np.ndarray
    seconds: np.ndarray
    residual: np.ndarray


@dataclass(frozen=True)
class Solution:
    """The answer to A @ weights = b, and how good it is.

    - `weights`: in the shape and the placement of b.
    - `result`: converged, budget reached, stalled, diverged or interrupted; `message` is a sentence with a remedy.
    - `residual`: ||b - A @ weights|| / ||b|| for each column, estimated on fresh rows of the returned weights. It has
      converged if two standard errors above that are below `tol`.
    - `residual_upper`: an upper limit of the residual that holds with 95 % confidence for all checks of a run together,
      unless a few rows have most of the residual (see `residual.py`). It includes the rounding error. Up to 2,048 rows
      all rows are checked, and it is the residual plus the rounding error.
    - `residuals`: b - A @ weights for every row and column, in the shape of `weights`, if it is known: block descent
      keeps it, a check may have covered all rows, or conjugate gradients ended on a recomputed residual.
    - `validation`: how well the rows kept aside were predicted; None if there were none.
    - `passes`: kernel entries used, in units of n^2. `seconds`: wall-clock time, compilation included.
    - `solver`: the solver with every automatic setting filled in. `trace`: the running estimates.
    - `factor`: the Cholesky factor of A, if the solver made one. `state`: the state for another step.
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
    residuals: AnyArray | None = field(default=None, repr=False)
    validation: Score | None = None
    factor: np.ndarray | None = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Run:
    """The settings of one run, beside those of the solver: randomness, start, limits, progress.

    `start_residual`: b - A @ start, if it is known. `validation`: rows to keep aside, whose predictions decide when to
    stop.
    """

    key: RandomKey | None
    start: AnyArray | None = None
    start_residual: AnyArray | None = None
    validation: Validation | None = None
    resume: Solution | None = None
    deadline: Deadline = field(default_factory=Deadline)
    max_passes: float | None = None
    checkpoint: str | os.PathLike | None = None
    progress: bool = False
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.began


class Solver(eqx.Module):
    """Solves A @ weights = b. Settings live in the solver, data in the call."""

    @property
    def takes_few_passes(self) -> bool:
        """Whether it needs at most about ten passes, so that keeping K does not pay."""
        return False

    def is_direct(self, n: int) -> bool:
        """Whether it factorises A with n rows instead of multiplying by it, so that keeping K is no use."""
        return False

    def stops_by_validation(self, n: int) -> bool:
        """Whether, with n rows, it stops by predictions of rows kept aside instead of by a residual."""
        return False

    @abstractmethod
    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        """Solve for all columns of `b` (n, s)."""


class IterativeSolver(Solver):
    """The settings of a solver that improves an iterate step by step."""

    tol: eqx.AbstractVar[float]

    @abstractmethod
    def prepare(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[Prepared, float]:
        """The prepared solver, with a value for every automatic setting, and the passes spent on that."""

    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        from dualgp.solvers.iterate import iterate  # which imports this module

        return iterate(self, operator, b, run)


class Prepared(eqx.Module):
    """An iterative solver that is ready to take steps. Budgets, stopping and progress are in iterate.py.

    `settings` is the public solver with every automatic setting filled in.
    """

    settings: eqx.AbstractVar[IterativeSolver]

    rules: ClassVar[Rules] = Rules()
    start_passes: ClassVar[float] = 0.0  # passes to compute the residual of a start that is not zero

    @property
    def tol(self) -> float:
        """The relative residual to stop at; 0 takes all steps."""
        return self.settings.tol

    @abstractmethod
    def init(self, operator: Operator, b: Columns, start: Columns) -> Any:
        """The state before the first step."""

    def init_at(self, operator: Operator, b: Columns, start: Columns, residual: Columns) -> Any:
        """`init` with a known residual b - A @ start: a solver that keeps the residual saves a pass."""
        return self.init(operator, b, start)

    @abstractmethod
    def step(self, operator: Operator, b: Columns, state: Any, key: RandomKey) -> tuple[Any, PerColumn]:
        """One step, and an estimate of ||b - A @ iterate||^2 for each column that costs nothing.

        If the state has `residuals`, these are used instead of the estimate.
        """

    def refresh(self, operator: Operator, state: Any, step: int, key: RandomKey) -> tuple[Any, int]:
        """Work on the host before step number `step`: the new state, and for how many steps it suffices."""
        return state, sys.maxsize

    @abstractmethod
    def weights(self, state: Any) -> Columns:
        """The weights to return."""

    def residuals(self, state: Any) -> Columns | None:
        """b - A @ weights if the state has it, else None."""
        return None

    def keep_aside(self, rows: Bool[np.ndarray, " n"]) -> Prepared | None:
        """The same solver without steps on these rows until `take_in`; None if it cannot do that."""
        return None

    def take_in(self, state: Any) -> tuple[Prepared, Any]:
        """The solver that steps on all rows again, and its state."""
        return self, state

    @abstractmethod
    def passes_per_step(self, n: int) -> float:
        """Kernel entries used by a step, in units of n^2."""

    @abstractmethod
    def max_steps(self, n: int) -> int:
        """The step budget."""

    def slower(self) -> Prepared | None:
        """A version with smaller steps to continue with after divergence; None if the user chose the settings."""
        return None

    @abstractmethod
    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        """Why it diverged and what to do, as a sentence."""


def check_tol(tol: float) -> None:
    """Raise unless the tolerance is a share of the right-hand side's norm."""
    check_share(tol, "tol", ": it is relative to the norm of b")


def check_passes(max_passes: float | None) -> None:
    """Raise unless it is a budget, or None."""
    if max_passes is not None:
        check_positive_number(max_passes, "max_passes", "Leave it out for no limit.")


def check_momentum(momentum: float, averaging: Any, automatic: str | None) -> None:
    """Raise unless these are shares; `averaging` may be what leaves it to the method."""
    check_share(momentum, "momentum")
    if averaging is None or isinstance(averaging, str):
        is_share = averaging == automatic
    else:
        check_number(averaging, "averaging")
        is_share = 0 < averaging <= 1
    if not is_share:
        raise ValueError(f"averaging must be in (0, 1] or {automatic!r}, got {averaging!r}.")


def is_alike(first: Any, second: Any) -> bool:
    """Whether the arrays of two states have equal shapes and dtypes; states of other settings may differ."""

    def layout(state: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(state)
        return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]

    return layout(first) == layout(second)
