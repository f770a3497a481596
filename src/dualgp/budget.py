"""How many rows get far weights.

All rows get them where a few passes over K cost little. Beyond, a random subset G does. The budget pays for the
equations of G and for the residuals of all n rows, PASSES |G|^2 + n |G| kernel entries, so that the cost is linear in
n. The near field uses all rows in any case. G does not depend on the targets, so error bars keep their guarantee.
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

from dualgp.operators import KernelOperator, policy
from dualgp.operators.cross import CrossProduct, evaluate
from dualgp.operators.layout import Local
from dualgp.posterior.prior import PriorPaths
from dualgp.solvers import Solver
from dualgp.solvers.base import Run
from dualgp.solvers.stopping import Deadline

PASSES = 8.0  # over G to a residual of 1e-2, with checks and factorisations (benchmarks/solvers.py)
FEWEST_ROWS = 2000  # with far weights, if any row has them
PROBED_ROWS = 16_384  # rows of the tile that measures the speed, in about 10 ms
TIME_SHARE = 0.75  # times the remaining time: compilation and the last check have the rest


def choose_num_far(
    operator: KernelOperator, prior: PriorPaths | None, solver: Solver, run: Run, fewest: int = 0, or_none: bool = True
) -> int:
    """How many rows get far weights: all of them, unless that needs more kernel entries than the budget allows.

    `fewest`: the number of rows that have weights already. `or_none`: whether 0 is allowed, because of a near field.
    """
    n, layout = operator.n, operator.layout
    if n <= policy.FAR_ALL_UP_TO:
        return n
    if begun := _begun_rows(run.checkpoint, n):
        return begun
    entries = policy.FAR_ENTRIES if solver.stops_by_validation(n) else math.inf
    if run.max_passes is not None:
        entries = run.max_passes * n**2
    if run.deadline.is_set:
        entries = min(entries, _entries_in_time(operator, prior, run.deadline))
    entries = layout.agree(entries)
    if PASSES * n**2 <= entries:
        return n
    rows = max(int((math.sqrt(n**2 + 4 * PASSES * entries) - n) / (2 * PASSES)), fewest)
    return min(n, max(rows, FEWEST_ROWS)) if rows >= FEWEST_ROWS or not or_none else 0


def over_rows(run: Run, rows: int, n: int) -> Run:
    """The settings for a solve of some of n rows: the same kernel entries, and a checkpoint named by their number."""
    if rows == n:
        return run
    passes = None if run.max_passes is None else run.max_passes * (n / rows) ** 2
    checkpoint = None if run.checkpoint is None else f"{os.fspath(run.checkpoint)}.{rows}-rows"
    return replace(run, max_passes=passes, checkpoint=checkpoint)


def _begun_rows(checkpoint: str | os.PathLike | None, n: int) -> int:
    """How many rows the interrupted run of this checkpoint was solving for; 0 if there is none."""
    if checkpoint is None:
        return 0
    path = Path(checkpoint)
    files = path.parent.glob(f"{glob.escape(path.name)}.*-rows")
    counts = [file.suffix.removeprefix(".").removesuffix("-rows") for file in files]
    return max((int(count) for count in counts if count.isdigit() and int(count) < n), default=0)


def _entries_in_time(operator: KernelOperator, prior: PriorPaths | None, deadline: Deadline) -> float:
    """Kernel entries that can be computed in the remaining time, after functions have been drawn at all rows."""
    own = operator.layout.read_own(operator.x)
    points, kernel, x = own[: policy.POINT_BLOCK], operator.kernel, own[:PROBED_ROWS]
    num_columns = 1 if prior is None else 1 + prior.weights.shape[1]
    product = CrossProduct(kernel, x, np.zeros((len(x), num_columns), operator.dtype), Local(len(x)))
    per_entry = _seconds(lambda: evaluate(product, points, x, kernel)) / max(len(points) * len(x), 1)
    per_draw = 0.0 if prior is None else _seconds(lambda: evaluate(prior, points, x, kernel)) / max(len(points), 1)
    seconds = TIME_SHARE * deadline.left - per_draw * len(own)
    return max(seconds, 0.0) / per_entry * operator.layout.num_devices


def _seconds(work: Callable[[], Any]) -> float:
    """Seconds that a second call takes; the first one compiles."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
