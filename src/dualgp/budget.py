"""A budget that is too short to converge on all rows is spent on as many rows as it is enough for.

Before block descent has gone over the data once, most rows have no weights, or weights that were found before their
neighbours had any. Fewer rows and more passes predict better (tests/test_budget.py). Which rows these are does not
depend on the targets, so error bars are as honest as ever.
"""

from __future__ import annotations

import glob
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dualgp._types import AnyArray
from dualgp.operators import KernelOperator, policy
from dualgp.operators.cross import CrossProduct, evaluate
from dualgp.operators.layout import Local
from dualgp.posterior import Posterior
from dualgp.posterior.prior import PriorPaths
from dualgp.solvers import Result, Solution
from dualgp.solvers.base import Run
from dualgp.solvers.stopping import Deadline

PASSES = 8.0  # to a residual of 1e-2, checks and factorisations included: 4.4 to 6.4 without (benchmarks/solvers.py)
FEWEST_ROWS = 2000
PROBED_ROWS = 16_384  # rows of the tile that the speed is measured on: some 10 ms
Z = 2.0  # standard errors from an estimate to its 95 % limit
TIME_SHARE = 0.75  # of the time that is left; the rest is for compilation and the last check


def rows_in_budget(operator: KernelOperator, prior: PriorPaths | None, run: Run, fewest: int = 0) -> int:
    """How many rows to solve for: all of them, unless the budget is too short for so many."""
    n = operator.n
    if n <= policy.SUBSET_FROM or not (run.deadline.is_set or run.max_passes is not None):
        return n
    rows = _begun_rows(run.checkpoint, n) or min(
        _rows_in_time(operator, prior, run.deadline), _rows_in_passes(n, run.max_passes), n
    )
    return round(operator.layout.agree(min(n, max(rows, FEWEST_ROWS, fewest))))


def over_rows(run: Run, rows: int, n: int) -> Run:
    """The run over some of n rows: as many kernel entries, and a file whose name says how many rows there are."""
    if rows == n:
        return run
    passes = None if run.max_passes is None else run.max_passes * (n / rows) ** 2
    checkpoint = None if run.checkpoint is None else f"{os.fspath(run.checkpoint)}.{rows}-rows"
    return replace(run, max_passes=passes, checkpoint=checkpoint)


def over_all_rows(posterior: Posterior, x: AnyArray, targets: np.ndarray, num_left_out: int) -> Solution:
    """The posterior's solution with the residual of all rows, those left out too, as seen on a sample `x` of them."""
    solution, num = posterior.solution, len(x)
    squares = (targets - evaluate(posterior.far, x, posterior.x, posterior.model.kernel)).astype(np.float64) ** 2
    solved, left_out = (num_left_out * part.mean(axis=0) for part in (targets.astype(np.float64) ** 2, squares))
    error = num_left_out * Z * squares.std(axis=0) / math.sqrt(num)
    own = np.sum(posterior.layout.collect(posterior.targets).astype(np.float64) ** 2, axis=0)
    norm = np.sqrt(own + solved)
    residual = np.sqrt(own * solution.residual**2 + left_out) / norm
    upper = np.sqrt(own * solution.residual_upper**2 + left_out + error) / norm
    result = Result.BUDGET_REACHED if solution.result is Result.CONVERGED else solution.result
    rows, n = posterior.layout.n, posterior.layout.n + num_left_out
    message = (
        f"The budget was too short for all rows: {rows:,} random ones of {n:,} were solved for. {solution.message} "
        f"Over all rows the relative residual is {residual.max():.2g}. Give it more time (refine)."
    )
    found = {
        "residual": residual,
        "residual_upper": upper,
        "residuals": None,
        "passes": solution.passes * (rows / n) ** 2,
    }
    return replace(solution, result=result, message=message, **found)


def _begun_rows(checkpoint: str | os.PathLike | None, n: int) -> int:
    """The rows that an interrupted run was solving for; 0 if there is none."""
    if checkpoint is None:
        return 0
    path = Path(checkpoint)
    files = path.parent.glob(f"{glob.escape(path.name)}.*-rows")
    counts = [file.suffix.removeprefix(".").removesuffix("-rows") for file in files]
    return max((int(count) for count in counts if count.isdigit() and int(count) < n), default=0)


def _rows_in_passes(n: int, max_passes: float | None) -> float:
    """PASSES passes over these rows are `max_passes` over all of them."""
    return math.inf if max_passes is None else n * math.sqrt(max_passes / PASSES)


def _rows_in_time(operator: KernelOperator, prior: PriorPaths | None, deadline: Deadline) -> float:
    """The rows m with PASSES m^2 seconds_per_entry + m seconds_per_draw = the time there is."""
    if not deadline.is_set:
        return math.inf
    num_columns = 1 if prior is None else 1 + prior.weights.shape[1]
    x = operator.layout.read_own(operator.x)[:PROBED_ROWS]
    weights = np.zeros((len(x), num_columns), operator.dtype)
    product = CrossProduct(operator.kernel, x, weights, Local(len(x)))
    points, kernel = x[: policy.POINT_BLOCK], operator.kernel
    per_entry = _seconds(lambda: evaluate(product, points, x, kernel)) / (len(points) * len(x))
    per_draw = 0.0 if prior is None else _seconds(lambda: evaluate(prior, points, x, kernel)) / len(points)
    quadratic, linear = (seconds / operator.layout.num_devices for seconds in (PASSES * per_entry, per_draw))
    time_left = max(TIME_SHARE * deadline.left, 0.0)
    return (math.sqrt(linear**2 + 4 * quadratic * time_left) - linear) / (2 * quadratic)


def _seconds(work: Callable[[], Any]) -> float:
    """What it takes the second time: the first time it is compiled."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
