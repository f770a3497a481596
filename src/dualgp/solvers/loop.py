"""The one loop of all iterative solvers: jitted chunks of steps, and between them everything a person cares about."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled
from dualgp._random import subkey, subkeys
from dualgp._threads import one_blas_thread_on_few_cores
from dualgp._types import Columns, RandomKey
from dualgp.checkpoints import Checkpoint, delete
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, Result, Run, Solution, Trace, require_key
from dualgp.solvers.part import spend_on_part
from dualgp.solvers.residual import Residual, column_norms, fresh_residual

# A chunk is at most a pass and a fixed amount of work, not of time: a run must not depend on the machine's speed. Twice
# as long ones end later than they must: 4.8 instead of 4.4 passes for the mean on elevators.
CHUNK_ENTRIES = 5e7
CHECKPOINT_SECONDS = 30.0
MOST_SLOWDOWNS = 10
PATIENT_STEPS = 300
BETWEEN_CHECKS = 4.0  # a failed check on fresh rows is followed by this many times its own cost in steps


@dataclass
class Progress:
    """Where a run is: with the solver and its states, all that the rest of it depends on. Saved as JSON."""

    step: int
    passes: float
    seconds: float = 0.0
    first: float = 1.0  # the relative residual of all columns together: at the start, the smallest, now
    smallest: float = 1.0
    level: float = math.inf
    slowdowns: int = 0
    checks: int = 0
    next_check: float = 0.0  # in passes
    milestone: float = math.inf
    milestone_step: int = 0
    trace: list[Sequence] = field(default_factory=list)  # step, passes, seconds, relative residual of each column


def iterate(requested: IterativeSolver, operator: Operator, b: Columns, run: Run) -> Solution:
    """Run `requested` until it has converged on fresh rows, diverged, spent its budget or been interrupted."""
    loop = Loop(requested, operator, b, run)
    with one_blas_thread_on_few_cores():
        try:
            result = spend_on_part(loop) or loop.go_on()
        except KeyboardInterrupt:
            if not operator.is_alone:  # what is left to do takes all processes, and the others do not know
                raise
            result = Result.INTERRUPTED
        return loop.finish(result)


class Loop:
    """One run of an iterative solver."""

    def __init__(self, requested: IterativeSolver, operator: Operator, b: Columns, run: Run) -> None:
        self.began = self.called = time.perf_counter()
        self.requested, key = requested, require_key(run, requested)
        self.setup_key, self.step_key, self.check_key = subkeys(key, 3)
        self.operator, self.b, self.run, self.norms = operator, b, run, column_norms(b)
        self.solver, setup_passes = requested.prepared(operator, b, self.setup_key)
        start = operator.place(np.zeros((operator.n, b.shape[1]), b.dtype)) if run.start is None else run.start
        self.state, self.first_step = operator.settled(self.solver.init(operator, b, start)), 0
        if run.resume is not None and _is_alike(run.resume.state, self.state):
            self.state, self.first_step = run.resume.state, run.resume.steps
        self.last_good = self.state
        self.at = Progress(self.first_step, setup_passes, milestone_step=self.first_step)
        per_step = self.solver.passes_per_step(operator.n)
        self.chunk = max(1, round(min(1.0, CHUNK_ENTRIES / operator.n**2) / per_step))
        self.checked: Residual | None = None
        self.rows = operator.n  # that have weights
        self.replaced: str | None = None  # a file that is not needed once this run has saved its own

        self.file, self.last_saved = None, time.perf_counter()
        if run.checkpoint is not None:
            self.file = Checkpoint(run.checkpoint, (requested, *operator.problem(b, start), key, self.first_step))
            if (saved := self.file.load((self.solver, self.state, self.last_good))) is not None:
                (self.solver, self.state, self.last_good), progress = saved
                self.at = Progress(**progress)
                self.began -= self.at.seconds
        if run.start is not None and not self.at.trace and self.first_step == 0:
            self.at.first = self.at.smallest = self._level(self.check(start).estimate * self.norms)

    def adopt(self, weights: Columns, rows: int, file: str | None) -> None:
        """Take weights that were found otherwise, for `rows` of all, in place of the file that has them."""
        self.rows, self.replaced = rows, file
        self.state = self.last_good = self.operator.settled(self.solver.init(self.operator, self.b, weights))
        self.checked = self.check(weights)
        self.at.level = self.at.smallest = self._level(self.checked.estimate * self.norms)
        self.at.trace.append((self.at.step, self.at.passes, self._seconds(), self.checked.estimate.tolist()))

    def go_on(self) -> Result:
        """Chunk after chunk until there is a reason to stop."""
        with _progress_bar(self.run.progress, type(self.solver).__name__) as show:
            return self._go_on(show)

    def _go_on(self, show: Callable[..., None]) -> Result:
        while (num := self._steps_left()) > 0:
            residual = self.take(num)
            if self._has_blown_up():
                if not self._start_again_more_carefully():
                    return Result.DIVERGED
                continue
            if self.at.level <= self.at.smallest:
                self.last_good, self.at.smallest = self.state, self.at.level
            show(self.solver, residual, (self.at.step - self.first_step) / self.solver.max_steps(self.operator.n))
            if residual.max() <= self.solver.tol:
                if self._holds_on_fresh_rows():
                    return Result.CONVERGED
            elif self.solver.tol > 0 and self._has_stalled():
                break
            if self.file is not None and self.since(self.last_saved) >= CHECKPOINT_SECONDS:
                self._save()
        return Result.BUDGET_REACHED

    def finish(self, result: Result) -> Solution:
        """The best iterate, checked on fresh rows."""
        if self.file is not None and result in (Result.BUDGET_REACHED, Result.INTERRUPTED):
            self._save()
        if self.replaced is not None:
            delete(self.replaced)
        if result is Result.DIVERGED or self.at.level > 2.0 * self.at.smallest:
            self.state = self.last_good
        weights = self.solver.weights(self.state)
        checked = self.checked or self.check(weights)
        if result is Result.BUDGET_REACHED and checked.upper.max() <= self.solver.tol:
            result = Result.CONVERGED
        if self.file is not None and result is Result.CONVERGED:
            self.file.delete()
        return Solution(
            weights=weights if self.operator.holds(weights) else np.asarray(weights),
            result=result,
            message=self._message(result, checked.estimate),
            residual=checked.estimate,
            residual_upper=checked.upper,
            steps=self.at.step,
            passes=self.at.passes,
            seconds=self._seconds(),
            solver=self.solver,
            trace=_as_trace(self.at.trace, self.b.shape[1]),
            state=self.state,
        )

    def _steps_left(self) -> int:
        solver, run, at, n = self.solver, self.run, self.at, self.operator.n
        out_of_time = run.max_seconds is not None and self.since(self.called) >= run.max_seconds
        if out_of_time and at.step > self.first_step:  # a chunk takes seconds, and is better than nothing
            return 0
        left = solver.max_steps(n) - (at.step - self.first_step)
        if run.max_passes is not None:
            left = min(left, math.floor((run.max_passes - at.passes) / solver.passes_per_step(n)))
        if at.step == self.first_step:  # a step that is dearer than the budget is better than nothing, too
            left = max(left, 1)
        return min(self.chunk, left)

    def take(self, num: int) -> np.ndarray:
        """`num` steps; returns the relative residual of each column that they saw."""
        at = self.at
        self.state, squared = advance(self.solver, self.operator, self.b, self.state, self.step_key, at.step, num)
        norms = np.sqrt(squared)
        at.step += num
        at.passes += num * self.solver.passes_per_step(self.operator.n)
        at.level = self._level(norms)
        at.trace.append((at.step, at.passes, self._seconds(), (norms / self.norms).tolist()))
        return norms / self.norms

    def _has_blown_up(self) -> bool:
        limit = max(self.at.first, self.solver.growth_limit * self.at.smallest)
        return not math.isfinite(self.at.level) or self.at.level > limit

    def _start_again_more_carefully(self) -> bool:
        """From the last good iterate, if the solver has a more careful version of itself."""
        slower = self.solver.slower() if self.at.slowdowns < MOST_SLOWDOWNS else None
        if slower is None:
            return False
        self.solver, self.at.slowdowns = slower, self.at.slowdowns + 1
        self.state = self.operator.settled(slower.init(self.operator, self.b, slower.weights(self.last_good)))
        return True

    def _holds_on_fresh_rows(self) -> bool:
        if self.at.passes < self.at.next_check:
            return False
        checked = self.check(self.solver.weights(self.state))
        if checked.upper.max() <= self.solver.tol:
            self.checked = checked
            return True
        self.at.next_check = self.at.passes + BETWEEN_CHECKS * checked.passes
        return False

    def _has_stalled(self) -> bool:
        """Whether the residual has not fallen by a tenth in the last third of the run: rounding is in the way."""
        at = self.at
        if at.smallest < 0.9 * at.milestone:
            at.milestone, at.milestone_step = at.smallest, at.step
        patience = self.solver.patience / self.solver.passes_per_step(self.operator.n)
        return at.step - at.milestone_step > max(PATIENT_STEPS, patience, at.step / 3)

    def check(self, weights: Columns) -> Residual:
        """The residual of weights on rows that no step has chosen."""
        checked = fresh_residual(self.operator, self.b, weights, subkey(self.check_key, self.at.checks))
        self.at.checks += 1
        self.at.passes += checked.passes
        return checked

    def seconds_left(self) -> float | None:
        """Until the limit of the clock, if there is one."""
        limit = self.run.max_seconds
        return None if limit is None else max(limit - self.since(self.called), 1e-3)

    def _level(self, residual_norms: np.ndarray) -> float:
        """The relative residual of all columns together."""
        return float(np.linalg.norm(residual_norms) / np.linalg.norm(self.norms))

    def since(self, moment: float) -> float:
        """Seconds, the same in all processes."""
        return self.operator.agreed(time.perf_counter() - moment)

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def _save(self) -> None:
        self.at.seconds, self.last_saved = self._seconds(), time.perf_counter()
        self.file.save((self.solver, self.state, self.last_good), asdict(self.at))

    def _message(self, result: Result, residual: np.ndarray) -> str:
        solver, at, noise, dtype = self.solver, self.at, float(self.operator.noise), self.operator.dtype
        name, reached = type(solver).__name__, f"relative residual {residual.max():.2g}"
        slowed = f" It started again more carefully {at.slowdowns} time(s) on the way." if at.slowdowns else ""
        if result is Result.CONVERGED:
            return f"{name} converged: {reached}, asked for {solver.tol:.2g}.{slowed}"
        if result is Result.DIVERGED:
            growth = max(at.trace[-1][3])
            how = f"residual {growth:.0e} times that of zero weights" if math.isfinite(growth) else "values not finite"
            reason = solver.explain_divergence(self.operator, self.setup_key)
            return f"{name} diverged at step {at.step} ({how}): {reason}"
        if solver.tol == 0 and result is not Result.INTERRUPTED:
            return f"{name} took all of its {at.step} steps: {reached}."
        if result is Result.BUDGET_REACHED and self._has_stalled():
            return (
                f"{name} stalled after {at.step} steps at {reached}, asked for {solver.tol:.2g}: with so little noise "
                f"({noise:.2g}), {dtype} goes no further. Pass dtype='float64', or accept it."
            )
        why = "was interrupted" if result is Result.INTERRUPTED else "used up its budget"
        if self.rows < self.operator.n:
            why = f"{why}, which was too short for all rows, on {self.rows:,} of {self.operator.n:,}"
            return f"{name} {why}: {reached} over all of them. {solver.if_unfinished}"
        reached = f"{reached}, asked for {solver.tol:.2g}"
        return f"{name} {why} after {at.step} steps at {reached}. {solver.if_unfinished}{slowed}"


def advance(
    solver: IterativeSolver, operator: Operator, b: Columns, state: Any, key: RandomKey, first: int, num: int
) -> tuple[Any, Float[np.ndarray, " s"]]:
    """`num` steps from step `first`, and the mean of their squared residuals."""
    step, total = first, np.zeros(b.shape[1])
    while step < first + num:
        state, most = solver.renewed(operator, state, step, key)
        few = min(first + num - step, most)
        state, squared = _advance(solver, operator, b, operator.settled(state), key, np.int32(step), np.int32(few))
        step, total = step + few, total + np.asarray(squared, np.float64)
    return state, total / num


@compiled
def _advance(
    solver: IterativeSolver, operator: Operator, b: Columns, state: Any, key: RandomKey, first: Array, num: Array
) -> tuple[Any, Float[Array, " s"]]:
    """`num` steps from step `first`, and the sum of their squared residuals. `num` is traced: one compilation."""

    def body(t: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        state, total = carry
        # Randomness depends on the step's number alone, so that chunks of any length give the same run.
        state, squared = solver.step(operator, b, state, jax.random.fold_in(key, t))
        return state, total + squared

    return jax.lax.fori_loop(first, first + num, body, (state, jnp.zeros(b.shape[1], b.dtype)))


def _is_alike(first: Any, second: Any) -> bool:
    """Whether two states have the same arrays: those of other settings, such as a block size, may not."""
    shapes = lambda state: jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), state)  # noqa: E731
    return shapes(first) == shapes(second) if jax.tree.structure(first) == jax.tree.structure(second) else False


def _as_trace(trace: list, num_columns: int) -> Trace:
    steps, passes, seconds, residual = zip(*trace, strict=True) if trace else ((), (), (), ())
    return Trace(
        np.array(steps, int),
        np.array(passes, float),
        np.array(seconds, float),
        np.array(residual, float).reshape(-1, num_columns),
    )


@contextmanager
def _progress_bar(wanted: bool, name: str) -> Iterator[Any]:
    """A bar whose length is the share of the way from residual 1 to tol on a log scale (or of the step budget)."""
    if not wanted:
        yield lambda *_: None
        return
    from tqdm.auto import tqdm

    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    with tqdm(total=100.0, desc=name, bar_format=layout) as bar:

        def show(solver: IterativeSolver, residual: np.ndarray, spent: float) -> None:
            worst = max(float(residual.max()), 1e-30)
            way = math.log(worst) / math.log(solver.tol) if 0 < solver.tol < 1 else 0.0
            bar.n = max(bar.n, 100.0 * min(1.0, max(way, spent)))
            bar.set_postfix_str(f"residual {worst:.2g}" + (f" (until {solver.tol:.2g})" if solver.tol > 0 else ""))

        yield show
