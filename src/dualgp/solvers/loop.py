"""The one loop of all iterative solvers: jitted chunks of steps, and between them everything a person cares about."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._types import Columns, RandomKey
from dualgp.checkpoints import Checkpoint
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, Result, Run, Solution, Trace, require_key
from dualgp.solvers.residual import Residual, column_norms, fresh_residual

# A chunk is at most a pass and a fixed amount of work, not of time: a run must not depend on the machine's speed.
CHUNK_ENTRIES = 2e8
CHECKPOINT_SECONDS = 30.0
MOST_SLOWDOWNS = 10
PATIENT_STEPS = 300
BETWEEN_CHECKS = 4.0  # a failed check on fresh rows is followed by this many times its own cost in steps


def iterate(requested: IterativeSolver, operator: Operator, b: Columns, run: Run) -> Solution:
    """Run `requested` until it has converged on fresh rows, diverged, spent its budget or been interrupted."""
    began = called = time.perf_counter()
    key = require_key(run, requested)
    setup_key, step_key, check_key = jax.random.split(key, 3)
    solver, setup_passes = requested.prepared(operator, b, setup_key)
    start = jnp.zeros_like(b) if run.start is None else run.start
    state, first_step = solver.init(operator, b, start), 0
    if run.resume is not None and jax.tree.structure(run.resume.state) == jax.tree.structure(state):
        state, first_step = run.resume.state, run.resume.steps
    norms, n = column_norms(b), operator.n
    chunk = max(1, round(min(1.0, CHUNK_ENTRIES / n**2) / solver.passes_per_step(n)))

    # Everything that the rest of the run depends on is in these three, so that they can be saved and read back.
    last_good = state
    at = {"step": first_step, "passes": setup_passes, "slowdowns": 0, "next_check": 0.0, "seconds": 0.0}
    at |= {"first": 1.0, "smallest": 1.0, "level": math.inf, "checks": 0}
    at |= {"milestone": math.inf, "milestone_step": first_step}
    trace: list[tuple[int, float, float, list[float]]] = []

    file = None
    if run.checkpoint is not None:
        file = Checkpoint(run.checkpoint, (requested, operator, b, start, key, first_step))
        if (saved := file.load((solver, state, last_good))) is not None:
            (solver, state, last_good), progress = saved
            at, trace = progress["at"], [tuple(entry) for entry in progress["trace"]]
            began -= at["seconds"]

    if run.start is not None and not trace and first_step == 0:
        first = _check(operator, b, start, check_key, at)
        at["first"] = at["smallest"] = _level(first.estimate * norms, norms)

    def seconds() -> float:
        return time.perf_counter() - began

    def save() -> None:
        at["seconds"] = seconds()
        file.save((solver, state, last_good), {"at": at, "trace": trace})

    result, checked, last_saved = Result.BUDGET_REACHED, None, time.perf_counter()
    with _progress_bar(run.progress, type(requested).__name__) as show:
        try:
            while (num := _steps_left(solver, n, first_step, at, run, time.perf_counter() - called, chunk)) > 0:
                after, sums = _advance(solver, operator, b, state, step_key, jnp.int32(at["step"]), jnp.int32(num))
                squared = np.asarray(sums, np.float64)
                at["step"] += num
                at["passes"] += num * solver.passes_per_step(n)
                residual, at["level"] = np.sqrt(squared) / norms, _level(np.sqrt(squared), norms)
                trace.append((at["step"], at["passes"], seconds(), residual.tolist()))

                if not math.isfinite(at["level"]) or at["level"] > max(
                    at["first"], solver.growth_limit * at["smallest"]
                ):
                    slower = solver.slower() if at["slowdowns"] < MOST_SLOWDOWNS else None
                    if slower is None:
                        result = Result.DIVERGED
                        break
                    solver, at["slowdowns"] = slower, at["slowdowns"] + 1
                    state = solver.init(operator, b, solver.weights(last_good))
                    continue

                state = after
                if at["level"] <= at["smallest"]:
                    last_good, at["smallest"] = state, at["level"]
                show(solver, residual, (at["step"] - first_step) / solver.max_steps(n))
                if residual.max() <= solver.tol and at["passes"] >= at["next_check"]:
                    checked = _check(operator, b, solver.weights(state), check_key, at)
                    if checked.upper.max() <= solver.tol:
                        result = Result.CONVERGED
                        break
                    at["next_check"], checked = at["passes"] + BETWEEN_CHECKS * checked.passes, None
                if residual.max() > solver.tol > 0 and _has_stalled(at, solver, n):
                    break
                if file is not None and time.perf_counter() - last_saved >= CHECKPOINT_SECONDS:
                    save()
                    last_saved = time.perf_counter()
        except KeyboardInterrupt:
            result = Result.INTERRUPTED

    if file is not None and result in (Result.BUDGET_REACHED, Result.INTERRUPTED):
        save()
    if result is Result.DIVERGED or at["level"] > 2.0 * at["smallest"]:
        state = last_good
    if checked is None:
        checked = _check(operator, b, solver.weights(state), check_key, at)
        if result is Result.BUDGET_REACHED and checked.upper.max() <= solver.tol:
            result = Result.CONVERGED
    return Solution(
        weights=np.asarray(solver.weights(state)),
        result=result,
        message=_message(result, solver, operator, checked.estimate, at, trace, setup_key),
        residual=checked.estimate,
        residual_upper=checked.upper,
        steps=at["step"],
        passes=at["passes"],
        seconds=seconds(),
        solver=solver,
        trace=_as_trace(trace, b.shape[1]),
        state=state,
    )


def _level(residual_norms: np.ndarray, norms: np.ndarray) -> float:
    """The relative residual of all columns together."""
    return float(np.linalg.norm(residual_norms) / np.linalg.norm(norms))


def _has_stalled(at: dict[str, Any], solver: IterativeSolver, n: int) -> bool:
    """Whether the residual has not fallen by a tenth in the last third of the run: rounding is in the way."""
    if at["smallest"] < 0.9 * at["milestone"]:
        at["milestone"], at["milestone_step"] = at["smallest"], at["step"]
    patience = max(PATIENT_STEPS, solver.patience / solver.passes_per_step(n), at["step"] / 3)
    return at["step"] - at["milestone_step"] > patience


def _check(operator: Operator, b: Columns, weights: Columns, key: RandomKey, at: dict[str, Any]) -> Residual:
    checked = fresh_residual(operator, b, weights, jax.random.fold_in(key, at["checks"]))
    at["checks"] += 1
    at["passes"] += checked.passes
    return checked


@eqx.filter_jit
def _advance(
    solver: IterativeSolver, operator: Operator, b: Columns, state: Any, key: RandomKey, first: Array, num: Array
) -> tuple[Any, Float[Array, " s"]]:
    """`num` steps from step `first`, and the mean of their squared residuals. `num` is traced: one compilation."""

    def body(t: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        state, total = carry
        # Randomness depends on the step's number alone, so that chunks of any length give the same run.
        state, squared = solver.step(operator, b, state, jax.random.fold_in(key, t))
        return state, total + squared

    total = jnp.zeros(b.shape[1], b.dtype)
    state, total = jax.lax.fori_loop(first, first + num, body, (state, total))
    return state, total / num


def _steps_left(
    solver: IterativeSolver, n: int, first_step: int, at: dict[str, Any], run: Run, seconds: float, chunk: int
) -> int:
    if run.max_seconds is not None and seconds >= run.max_seconds:
        return 0
    left = solver.max_steps(n) - (at["step"] - first_step)
    if run.max_passes is not None:
        left = min(left, math.floor((run.max_passes - at["passes"]) / solver.passes_per_step(n)))
    return min(chunk, left)


def _message(
    result: Result,
    solver: IterativeSolver,
    operator: Operator,
    residual: np.ndarray,
    at: dict[str, Any],
    trace: list,
    key: RandomKey,
) -> str:
    name, reached = type(solver).__name__, f"relative residual {residual.max():.2g}"
    slowed = f" It started again more carefully {at['slowdowns']} time(s) on the way." if at["slowdowns"] else ""
    if result is Result.CONVERGED:
        return f"{name} converged: {reached}, asked for {solver.tol:.2g}.{slowed}"
    if result is Result.DIVERGED:
        growth = max(trace[-1][3])
        how = f"residual {growth:.0e} times that of zero weights" if math.isfinite(growth) else "values not finite"
        return f"{name} diverged at step {at['step']} ({how}): {solver.explain_divergence(operator, key)}"
    if solver.tol == 0 and result is not Result.INTERRUPTED:
        return f"{name} took all of its {at['step']} steps: {reached}."
    if result is Result.BUDGET_REACHED and _has_stalled(at, solver, operator.n):
        return (
            f"{name} stalled after {at['step']} steps at {reached}, asked for {solver.tol:.2g}: with so little noise "
            f"({float(operator.noise):.2g}), {operator.dtype} goes no further. Pass dtype='float64', or accept it."
        )
    why = "was interrupted" if result is Result.INTERRUPTED else "used up its budget"
    advice = "Give it more time (refine), or accept wider error bars."
    return f"{name} {why} after {at['step']} steps at {reached}, asked for {solver.tol:.2g}. {advice}{slowed}"


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
