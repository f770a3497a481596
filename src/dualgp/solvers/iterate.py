"""The loop of all iterative solvers: jitted chunks of steps, and stopping, checkpoints and progress between them."""

import math
import time
from dataclasses import asdict, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled
from dualgp._checks import check_key
from dualgp._random import subkey
from dualgp._threads import one_blas_thread_on_few_cores
from dualgp._types import Columns, RandomKey
from dualgp.checkpoints import Checkpoint
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, PerColumn, Prepared, Result, Run, Solution, is_alike
from dualgp.solvers.messages import describe
from dualgp.solvers.progress import Progress, progress_bar
from dualgp.solvers.residual import Residual, check_residual, column_norms, norms, passes_of_check, residual_of
from dualgp.solvers.stopping import Level, steps_in_time
from dualgp.solvers.validation import Errors, Score

# A chunk is at most a pass and a fixed amount of work, not of time: a run must not depend on the machine's speed.
# Chunks of twice the length stop later: after 4.8 instead of 4.4 passes for the mean on elevators.
CHUNK_ENTRIES = 5e7
CHECKPOINT_SECONDS = 30.0
MOST_SLOWDOWNS = 10
FORGETTING = 0.9  # the measured time of a step falls by at most a tenth from chunk to chunk; it may rise freely
LOOK_EVERY = 0.2  # passes between two scores of rows kept aside; a score is compared with the last but one
# Passes before a run from zero weights may stop, so that all rows have had steps, and passes at its end with the rows
# kept aside taken in: on pol the RMSE is then within 0.4 % of the exact one (benchmarks/near_far.py).
FIRST_PASSES, LAST_PASSES = 1.4, 0.5
MOST_DRIFTS = 2  # how often the residual of all rows is recomputed because the kept one has rounding errors
MUCH_WORSE = 2.0  # times the smallest residual: beyond, an unfinished run returns the iterate with the smallest one


def iterate(requested: IterativeSolver, operator: Operator, b: Columns, run: Run) -> Solution:
    """Run `requested` until it converges on fresh rows, stalls, diverges, reaches its budget or is interrupted."""
    with one_blas_thread_on_few_cores():
        loop = Loop(requested, operator, b, run)
        try:
            result = loop.go_on()
        except KeyboardInterrupt:
            if not operator.layout.is_alone:  # the remaining work needs all processes
                raise
            result = Result.INTERRUPTED
        return loop.finish(result)


class Loop:
    """One run of an iterative solver."""

    def __init__(self, requested: IterativeSolver, operator: Operator, b: Columns, run: Run) -> None:
        key = check_key(run.key, type(requested).__name__)
        self.setup_key, self.step_key, self.check_key = (subkey(key, name) for name in ("setup", "steps", "checks"))
        self.operator, self.b, self.run, self.norms = operator, b, run, column_norms(b)
        self.prepared, passes = requested.prepare(operator, b, self.setup_key)
        self.alone = self._keep_aside()
        self.passes_per_step = self.prepared.passes_per_step(operator.n)
        self.chunk = max(1, round(min(1.0, CHUNK_ENTRIES / operator.n**2) / self.passes_per_step))
        start = (
            operator.layout.place(np.zeros((operator.n, b.shape[1]), b.dtype), operator.dtype)
            if run.start is None
            else run.start
        )
        self.state, self.first_step = self._init(start, run.start_residual), 0
        if run.resume is not None and is_alike(run.resume.state, self.state):
            self.state, self.first_step = run.resume.state, run.resume.steps
        self.last_good, self.began = self.state, run.began
        self.checked: Residual | None = None  # the check of the present state, if it was checked
        passes += 0.0 if run.start is None or run.start_residual is not None else self.prepared.start_passes
        self.progress = Progress(self.first_step, passes, level=Level(milestone_step=self.first_step))
        self.file, self.last_saved = None, time.perf_counter()
        if run.checkpoint is not None:
            self.file = Checkpoint(run.checkpoint, (requested, *operator.fingerprint(b, start), key, self.first_step))
            self._load(self.file)
        if run.start is not None and not self.progress.trace and self.first_step == 0:
            self._measure_start(start)
        self.seconds_per_step: float | None = None
        self._compile()
        self.seconds_at_start = operator.layout.agree(run.deadline.left)

    def go_on(self) -> Result:
        """Run chunks of steps until a rule ends the run."""
        prepared = self.prepared
        with progress_bar(self.run.progress, type(prepared.settings).__name__, prepared.tol) as show:
            while (num := self._next_chunk()) > 0:
                residual = self._take(num)
                if self.progress.level.has_blown_up(self.prepared.rules):
                    if not self._start_again_more_carefully():
                        return Result.DIVERGED
                    continue
                score = self._look_aside()
                show(residual, (self.progress.step - self.first_step) / self.prepared.max_steps(self.operator.n), score)
                if score is not None and (self._is_budget_needed() or not self._is_worth_a_pass(score)):
                    if score.is_alone:
                        return Result.CONVERGED
                    self._take_in()
                if self.progress.passes >= self.progress.enough:
                    return Result.CONVERGED
                if (result := self._judge(residual)) is not None:
                    return result
                if self.file is not None and self._agreed_seconds_since(self.last_saved) >= CHECKPOINT_SECONDS:
                    self._save(self.file)
        return Result.BUDGET_REACHED

    def finish(self, result: Result) -> Solution:
        """The best iterate as a Solution, checked on fresh rows."""
        is_unfinished = result in (Result.BUDGET_REACHED, Result.STALLED, Result.INTERRUPTED)
        if self.file is not None and is_unfinished:
            self._save(self.file)
        level = self.progress.level
        if result is Result.DIVERGED or (is_unfinished and level.now > MUCH_WORSE * level.smallest):
            self.state, self.checked = self.last_good, None
        score = None if result is Result.DIVERGED else self._last_score()
        checked = self.checked or self._check()
        if result in (Result.BUDGET_REACHED, Result.STALLED) and checked.judged.max() <= self.prepared.tol:
            result = Result.CONVERGED
        if self.file is not None and result is Result.CONVERGED:
            self.file.delete()
        worst = float(checked.estimate.max())
        return Solution(
            weights=self.prepared.weights(self.state),
            result=result,
            message=describe(result, self.prepared, self.operator, self.progress, worst, self.setup_key, score),
            residual=checked.estimate,
            residual_upper=checked.upper,
            residuals=checked.rows,
            validation=score,
            steps=self.progress.step,
            passes=self.progress.passes,
            seconds=self._seconds(),
            solver=self.prepared.settings,
            trace=self.progress.as_trace(self.b.shape[1]),
            state=self.state,
        )

    def _next_chunk(self) -> int:
        """The number of steps within every budget, at most a chunk. The first step is always taken."""
        left = self.prepared.max_steps(self.operator.n) - (self.progress.step - self.first_step)
        if self.run.max_passes is not None:
            left = min(left, math.floor((self.run.max_passes - self.progress.passes) / self.passes_per_step))
        if self.progress.step == self.first_step:
            left = max(left, 1)
        if self.run.deadline.is_set:
            left = min(left, self._steps_in_time())
        return min(left, self.chunk)

    def _steps_in_time(self) -> int:
        """The steps that end before the deadline, with time left for the final check; 1 before any was measured."""
        if self.seconds_per_step is None:
            return 1
        check = passes_of_check(self.operator.n) / self.passes_per_step * self.seconds_per_step
        left = self.operator.layout.agree(self.run.deadline.left) - check
        return steps_in_time(left, self.seconds_per_step, self.prepared.rules.longest_step)

    def _take(self, num: int) -> float:
        """Take `num` steps; return the largest relative residual of a column."""
        progress, first, began = self.progress, self.progress.step, time.perf_counter()
        self.state, squared = advance(self.prepared, self.operator, self.b, self.state, self.step_key, first, num)
        kept = self.prepared.residuals(self.state)
        self.checked, found = None, np.sqrt(squared) if kept is None else norms(kept)
        progress.step += num
        progress.passes += num * self.passes_per_step
        progress.level = progress.level.update(self._relative(found), progress.step)
        if progress.level.now <= progress.level.smallest:
            self.last_good = self.state
        if self.run.deadline.is_set:
            seconds = self._agreed_seconds_since(began) / num
            self.seconds_per_step = max(seconds, FORGETTING * (self.seconds_per_step or 0.0))
        relative = found / self.norms
        progress.trace.append((progress.step, progress.passes, self._seconds(), relative.tolist()))
        return float(relative.max())

    def _judge(self, residual: float) -> Result | None:
        """The result if the run has converged or stalled; None if it continues."""
        tol, progress = self.prepared.tol, self.progress
        if residual <= min(tol, progress.check_below):
            checked = self._check()
            if checked.judged.max() <= tol:
                return Result.CONVERGED
            progress.check_below = residual * tol / checked.judged.max()
            if self.prepared.residuals(self.state) is not None:
                return self._compute_residual_again()
        stalled = progress.level.has_stalled(self.prepared.rules, progress.step, self.passes_per_step)
        return Result.STALLED if tol > 0 and stalled else None

    def _compute_residual_again(self) -> Result | None:
        """Recompute the residual if the one that the solver keeps has drifted by rounding; at most twice."""
        self.progress.drifts += 1
        if self.progress.drifts > MOST_DRIFTS:
            return Result.STALLED
        weights = self.prepared.weights(self.state)
        self.state = self._init(weights, residual_of(self.operator, self.b, weights))
        self.progress.passes, self.progress.check_below = self.progress.passes + 1.0, math.inf
        return None

    def _check(self) -> Residual:
        """The residual of the present state on rows chosen independently of the steps."""
        progress, key = self.progress, subkey(self.check_key, self.progress.checks)
        weights, kept = self.prepared.weights(self.state), self.prepared.residuals(self.state)
        self.checked = check_residual(self.operator, self.b, weights, key, progress.checks, kept)
        progress.checks += 1
        progress.passes += self.checked.passes
        return self.checked

    def _keep_aside(self) -> Errors | None:
        """Keep rows aside, if the run asks for it and the solver can; return their errors by neighbours alone."""
        validation, n = self.run.validation, self.operator.n
        prepared = None if validation is None else self.prepared.keep_aside(np.isin(np.arange(n), validation.rows))
        if validation is None or prepared is None:
            return None
        self.prepared = prepared
        return validation.errors(self.b, self.operator.layout.read_rows)

    def _look_aside(self) -> Score | None:
        """The score of the rows kept aside, if enough passes were made since the last score."""
        seen = self.progress.scores
        if math.isfinite(self.progress.enough) or (seen and self.progress.passes < seen[-1][0] + LOOK_EVERY):
            return None
        score = self._score()
        if score is not None:
            seen.append((self.progress.passes, *score))
        return score

    def _score(self) -> Score | None:
        """How well the rows kept aside are predicted."""
        kept, validation = self.prepared.residuals(self.state), self.run.validation
        if self.alone is None or validation is None or kept is None:
            return None
        return validation.score(self.alone, validation.errors(kept, self.operator.layout.read_rows))

    def _last_score(self) -> Score | None:
        """The score of the returned state, or the last one before the rows were taken in."""
        if math.isfinite(self.progress.enough):
            return Score(*self.progress.scores[-1][1:])
        return self._score()

    def _is_worth_a_pass(self, score: Score) -> bool:
        """Whether the score still improves; true as long as there are too few scores."""
        before = self.progress.scores[:-2]
        if not before or (self.run.start is None and self.progress.passes < FIRST_PASSES):
            return True
        passes, *fields = before[-1]
        return score.improves_on(Score(*fields), self.progress.passes - passes)

    def _is_budget_needed(self) -> bool:
        """Whether the remaining budget is needed to take the rows kept aside in."""
        passes, deadline = self.run.max_passes, self.run.deadline
        if passes is not None and self.progress.passes >= max(0.5 * passes, passes - LAST_PASSES):
            return True
        if not deadline.is_set:
            return False
        last = LAST_PASSES / self.passes_per_step * (self.seconds_per_step or math.inf)
        return self.operator.layout.agree(deadline.left) < min(0.5 * self.seconds_at_start, last)

    def _take_in(self) -> None:
        """Take the rows kept aside in, for the last passes."""
        self.prepared, self.state = self.prepared.take_in(self.state)
        self.progress.enough = self.progress.passes + LAST_PASSES
        self.checked, self.last_good = None, self.state

    def _start_again_more_carefully(self) -> bool:
        """Continue from the last good iterate with smaller steps, if the solver has a slower version."""
        slower = self.prepared.slower() if self.progress.slowdowns < MOST_SLOWDOWNS else None
        if slower is None:
            return False
        weights = self.prepared.weights(self.last_good)
        self.prepared, self.progress.slowdowns = slower, self.progress.slowdowns + 1
        self.state = self._init(weights)
        self._compile()
        return True

    def _init(self, start: Columns, residual: Columns | None = None) -> Any:
        state = (
            self.prepared.init(self.operator, self.b, start)
            if residual is None
            else self.prepared.init_at(self.operator, self.b, start, residual)
        )
        return self.operator.layout.replicate(state)

    def _measure_start(self, start: Columns) -> None:
        """Begin with the residual of the given weights instead of 1."""
        checked = check_residual(self.operator, self.b, start, subkey(self.check_key, "start"))
        self.progress.passes += checked.passes
        first = self._relative(checked.estimate * self.norms)
        self.progress.level = replace(self.progress.level, first=first, smallest=first)

    def _compile(self) -> None:
        """Compile the steps before any is timed, by a call with zero steps."""
        if self.run.deadline.is_set:
            _advance(self.prepared, self.operator, self.b, self.state, self.step_key, np.int32(0), np.int32(0))

    def _relative(self, residual_norms: np.ndarray) -> float:
        """The relative residual of all columns together."""
        return float(np.linalg.norm(residual_norms) / np.linalg.norm(self.norms))

    def _agreed_seconds_since(self, moment: float) -> float:
        """Seconds since a moment, equal in all processes, so that all decide alike."""
        return self.operator.layout.agree(time.perf_counter() - moment)

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def _save(self, file: Checkpoint) -> None:
        self.progress.seconds, self.last_saved = self._seconds(), time.perf_counter()
        file.save((self.prepared, self.state, self.last_good), asdict(self.progress))

    def _load(self, file: Checkpoint) -> None:
        if (saved := file.load((self.prepared, self.state, self.last_good))) is not None:
            (self.prepared, self.state, self.last_good), progress = saved
            self.progress = Progress(**progress | {"level": Level(**progress["level"])})
            self.began -= self.progress.seconds


def advance(
    prepared: Prepared, operator: Operator, b: Columns, state: Any, key: RandomKey, first: int, num: int
) -> tuple[Any, Float[np.ndarray, " s"]]:
    """`num` steps from step `first`, and the mean of their squared residuals."""
    step, total = first, np.zeros(b.shape[1])
    while step < first + num:
        state, most = prepared.refresh(operator, state, step, key)
        few = min(first + num - step, most)
        state, squared = _advance(
            prepared, operator, b, operator.layout.replicate(state), key, np.int32(step), np.int32(few)
        )
        step, total = step + few, total + np.asarray(squared, np.float64)
    return state, total / num


@compiled
def _advance(
    prepared: Prepared, operator: Operator, b: Columns, state: Any, key: RandomKey, first: Array, num: Array
) -> tuple[Any, PerColumn]:
    """`num` steps from step `first`, and the sum of their squared residuals. `num` is traced: one compilation."""

    def body(t: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        state, total = carry
        # Randomness depends on the number of the step alone, so that the lengths of chunks do not matter.
        state, squared = prepared.step(operator, b, state, jax.random.fold_in(key, t))
        return state, total + squared

    return jax.lax.fori_loop(first, first + num, body, (state, jnp.zeros(b.shape[1], b.dtype)))
