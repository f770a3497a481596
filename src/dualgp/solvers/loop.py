"""The one loop of all iterative solvers: jitted chunks of steps, and between them everything a person cares about."""

import glob
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
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
from dualgp.solvers.part import (
    MANY_ROWS,
    PLENTY_OF_PASSES,
    PROBE_SHARE,
    Part,
    enough_passes,
    probe_rows,
    rows_for,
    take_part,
)
from dualgp.solvers.residual import Residual, column_norms, fresh_residual

# A chunk is at most a pass and a fixed amount of work, not of time: a run must not depend on the machine's speed. Twice
# as long ones end later than they must: 5.5 instead of 4.8 passes for the mean on elevators.
CHUNK_ENTRIES = 1e8
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
    loop = _Loop(requested, operator, b, run)
    with one_blas_thread_on_few_cores():
        try:
            result = loop.spend_on_part() or loop.go_on()
        except KeyboardInterrupt:
            if not operator.is_alone:  # what is left to do takes all processes, and the others do not know
                raise
            result = Result.INTERRUPTED
        return loop.finish(result)


class _Loop:
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
        self.part_file: str | None = None

        self.file, self.last_saved = None, time.perf_counter()
        if run.checkpoint is not None:
            self.file = Checkpoint(run.checkpoint, (requested, *operator.problem(b, start), key, self.first_step))
            if (saved := self.file.load((self.solver, self.state, self.last_good))) is not None:
                (self.solver, self.state, self.last_good), progress = saved
                self.at = Progress(**progress)
                self.began -= self.at.seconds
        if run.start is not None and not self.at.trace and self.first_step == 0:
            self.at.first = self.at.smallest = self._level(self._check(start).estimate * self.norms)

    def spend_on_part(self) -> Result | None:
        """Where the budget is too short to converge on many rows, the answer for some of them (part.py)."""
        run, n = self.run, self.operator.n
        is_new = run.start is None and not self.at.trace
        if not (self.solver.takes_part and is_new and n > MANY_ROWS and (run.max_seconds or run.max_passes)):
            return None
        rows = self._begun_part() or self._rows_in_budget()
        if rows == n:
            return None
        passes = None if run.max_passes is None else (1.0 - PROBE_SHARE) * run.max_passes
        self.part_file = None if run.checkpoint is None else f"{os.fspath(run.checkpoint)}.{rows}-rows"
        return self._adopt(*self._solve_part(rows, passes, self.part_file))

    def _begun_part(self) -> int:
        """The rows of the part that an interrupted run was at, 0 if there is none."""
        if self.run.checkpoint is None:
            return 0
        path = Path(self.run.checkpoint)
        files = path.parent.glob(f"{glob.escape(path.name)}.*-rows")
        found = [file.suffix.removeprefix(".").removesuffix("-rows") for file in files]
        most = max((int(rows) for rows in found if rows.isdigit() and int(rows) < self.operator.n), default=0)
        return round(self.operator.agreed(most))

    def _rows_in_budget(self) -> int:
        """As many rows as the budget is enough for, as seen on a probe."""
        n, seconds_per_pass = self.operator.n, self._seconds_per_pass()
        passes = self._passes_left(seconds_per_pass)
        if passes >= PLENTY_OF_PASSES:
            return n
        probed = probe_rows(passes, n)
        part, probe = self._solve_part(probed, PROBE_SHARE * passes)
        if probe.result is Result.INTERRUPTED:
            self._adopt(part, probe)
            raise KeyboardInterrupt
        elsewhere = self._check(part.spread(probe.weights, self.operator)[0]).estimate
        needed = enough_passes(probe.trace, elsewhere, self.solver.tol)
        if (timed := np.ptp(probe.trace.passes)) > 0:  # after the first chunk, which compiles
            seconds_per_pass = float(np.ptp(probe.trace.seconds) / timed) * (n / probed) ** 2
        return max(probed, rows_for(self._passes_left(seconds_per_pass), n, needed, probed))

    def _solve_part(self, rows: int, passes: float | None, checkpoint: str | None = None) -> tuple[Part, Solution]:
        """The equations of so many rows, in at most `passes` over all of them and the seconds that are left."""
        n = self.operator.n
        part = take_part(self.operator, self.b, rows, subkey(self.setup_key, 1))
        run = replace(
            self.run,
            key=self.step_key,
            start=jnp.zeros_like(part.b),  # a run that starts from somewhere takes no part of its own
            max_seconds=self._seconds_left(),
            max_passes=None if passes is None else passes * (n / rows) ** 2,
            checkpoint=checkpoint,
        )
        solution = iterate(self.requested, part.operator, part.b, run)
        self.at.passes += solution.passes * (rows / n) ** 2
        return part, solution

    def _adopt(self, part: Part, solution: Solution) -> Result:
        """The answer for a part as that for all rows."""
        weights, self.rows = part.spread(solution.weights, self.operator)
        self.state = self.last_good = self.operator.settled(self.solver.init(self.operator, self.b, weights))
        self.checked = self._check(weights)
        self.at.level = self.at.smallest = self._level(self.checked.estimate * self.norms)
        self.at.trace.append((self.at.step, self.at.passes, self._seconds(), self.checked.estimate.tolist()))
        return Result.BUDGET_REACHED if solution.result is Result.CONVERGED else solution.result

    def _seconds_per_pass(self) -> float:
        """What a step takes is known after two of them, where anyone asks: the first compiles."""
        if self.run.max_seconds is None:
            return 1.0
        self._take(1)
        began = time.perf_counter()
        self._take(1)
        return self._since(began) / self.solver.passes_per_step(self.operator.n)

    def _seconds_left(self) -> float | None:
        limit = self.run.max_seconds
        return None if limit is None else max(limit - self._since(self.called), 1e-3)

    def _passes_left(self, seconds_per_pass: float) -> float:
        """Passes over all rows that the budget still allows."""
        by_count = math.inf if self.run.max_passes is None else self.run.max_passes - self.at.passes
        seconds = self._seconds_left()
        by_clock = math.inf if seconds is None else seconds / self.operator.agreed(seconds_per_pass)
        return max(min(by_count, by_clock), 1e-6)

    def go_on(self) -> Result:
        """Chunk after chunk until there is a reason to stop."""
        with _progress_bar(self.run.progress, type(self.solver).__name__) as show:
            return self._go_on(show)

    def _go_on(self, show: Callable[..., None]) -> Result:
        while (num := self._steps_left()) > 0:
            residual = self._take(num)
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
            if self.file is not None and self._since(self.last_saved) >= CHECKPOINT_SECONDS:
                self._save()
        return Result.BUDGET_REACHED

    def finish(self, result: Result) -> Solution:
        """The best iterate, checked on fresh rows."""
        if self.file is not None and result in (Result.BUDGET_REACHED, Result.INTERRUPTED):
            self._save()
        if self.part_file is not None:
            delete(self.part_file)
        if result is Result.DIVERGED or self.at.level > 2.0 * self.at.smallest:
            self.state = self.last_good
        weights = self.solver.weights(self.state)
        checked = self.checked or self._check(weights)
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
        out_of_time = run.max_seconds is not None and self._since(self.called) >= run.max_seconds
        if out_of_time and at.step > self.first_step:  # a chunk takes seconds, and is better than nothing
            return 0
        left = solver.max_steps(n) - (at.step - self.first_step)
        if run.max_passes is not None:
            left = min(left, math.floor((run.max_passes - at.passes) / solver.passes_per_step(n)))
        if at.step == self.first_step:  # a step that is dearer than the budget is better than nothing, too
            left = max(left, 1)
        return min(self.chunk, left)

    def _take(self, num: int) -> np.ndarray:
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
        checked = self._check(self.solver.weights(self.state))
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

    def _check(self, weights: Columns) -> Residual:
        checked = fresh_residual(self.operator, self.b, weights, subkey(self.check_key, self.at.checks))
        self.at.checks += 1
        self.at.passes += checked.passes
        return checked

    def _level(self, residual_norms: np.ndarray) -> float:
        """The relative residual of all columns together."""
        return float(np.linalg.norm(residual_norms) / np.linalg.norm(self.norms))

    def _since(self, moment: float) -> float:
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
