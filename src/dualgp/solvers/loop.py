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
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, Result, Run, Solution, Trace, require_key
from dualgp.solvers.residual import column_norms, fresh_residual

# A chunk is at most a pass and a fixed amount of work, not of time: a run must not depend on the machine's speed.
CHUNK_ENTRIES = 2e8
MOST_SLOWDOWNS = 10
BETWEEN_CHECKS = 4.0  # a failed check on fresh rows is followed by this many times its own cost in steps


def iterate(requested: IterativeSolver, operator: Operator, b: Columns, run: Run) -> Solution:
    """Run `requested` until it has converged on fresh rows, diverged, spent its budget or been interrupted."""
    began = time.perf_counter()
    setup_key, step_key, check_key = jax.random.split(require_key(run, requested), 3)
    solver, passes = requested.prepared(operator, b, setup_key)
    state = solver.init(operator, b, jnp.zeros_like(b) if run.start is None else run.start)
    norms, n = column_norms(b), operator.n
    chunk = max(1, round(min(1.0, CHUNK_ENTRIES / n**2) / solver.passes_per_step(n)))

    last_good, smallest = state, (1.0 if run.start is None else math.inf)
    step, slowdowns, next_check, level = 0, 0, 0.0, smallest
    result, checked = Result.BUDGET_REACHED, None
    trace: list[tuple[int, float, float, np.ndarray]] = []

    with _progress_bar(run.progress, type(requested).__name__) as show:
        try:
            while (num := _steps_left(solver, n, step, passes, run, began, chunk)) > 0:
                after, squared = _advance(solver, operator, b, state, step_key, jnp.int32(step), jnp.int32(num))
                squared = np.asarray(squared, np.float64)
                step, passes = step + num, passes + num * solver.passes_per_step(n)
                residual, level = np.sqrt(squared) / norms, math.sqrt(squared.sum() / (norms**2).sum())
                trace.append((step, passes, time.perf_counter() - began, residual))

                if not math.isfinite(level) or level > solver.growth_limit * smallest:
                    slower = solver.slower() if slowdowns < MOST_SLOWDOWNS else None
                    if slower is None:
                        result = Result.DIVERGED
                        break
                    solver, slowdowns = slower, slowdowns + 1
                    state = solver.init(operator, b, solver.weights(last_good))
                    continue

                state = after
                if level <= smallest:
                    last_good, smallest = state, level
                show(solver, residual, step / solver.max_steps(n))
                if residual.max() <= solver.tol and passes >= next_check:
                    check_key, subkey = jax.random.split(check_key)
                    checked = fresh_residual(operator, b, solver.weights(state), subkey)
                    passes += checked.passes
                    if checked.upper.max() <= solver.tol:
                        result = Result.CONVERGED
                        break
                    next_check = passes + BETWEEN_CHECKS * checked.passes
                    checked = None
        except KeyboardInterrupt:
            result = Result.INTERRUPTED

    if result is Result.DIVERGED or level > 2.0 * smallest:
        state = last_good
    if checked is None:
        checked = fresh_residual(operator, b, solver.weights(state), check_key)
        passes += checked.passes
        if result is Result.BUDGET_REACHED and checked.upper.max() <= solver.tol:
            result = Result.CONVERGED
    seconds = time.perf_counter() - began
    return Solution(
        weights=np.asarray(solver.weights(state)),
        result=result,
        message=_message(result, solver, operator, checked.estimate, step, trace, slowdowns, setup_key),
        residual=checked.estimate,
        residual_upper=checked.upper,
        steps=step,
        passes=passes,
        seconds=seconds,
        solver=solver,
        trace=_as_trace(trace, b.shape[1]),
    )


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
    solver: IterativeSolver, n: int, step: int, passes: float, run: Run, began: float, chunk: int
) -> int:
    if run.max_seconds is not None and time.perf_counter() - began >= run.max_seconds:
        return 0
    left = solver.max_steps(n) - step
    if run.max_passes is not None:
        left = min(left, math.floor((run.max_passes - passes) / solver.passes_per_step(n)))
    return min(chunk, left)


def _message(
    result: Result,
    solver: IterativeSolver,
    operator: Operator,
    residual: np.ndarray,
    step: int,
    trace: list,
    slowdowns: int,
    key: RandomKey,
) -> str:
    name = type(solver).__name__
    slowed = f" Its step size was halved {slowdowns} time(s) on the way." if slowdowns else ""
    if result is Result.CONVERGED:
        return f"{name} converged: relative residual {residual.max():.2g}, asked for {solver.tol:.2g}.{slowed}"
    if result is Result.DIVERGED:
        growth = float(np.max(trace[-1][3]))
        how = f"residual {growth:.0e} times that of zero weights" if math.isfinite(growth) else "values not finite"
        return f"{name} diverged at step {step} ({how}): {solver.explain_divergence(operator, key)}"
    why = "was interrupted" if result is Result.INTERRUPTED else "used up its budget"
    wanted = f", asked for {solver.tol:.2g}. Give it more time, or accept wider error bars" if solver.tol > 0 else ""
    return f"{name} {why} after {step} steps at relative residual {residual.max():.2g}{wanted}.{slowed}"


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
