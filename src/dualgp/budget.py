"""How many rows get far weights.

All rows, as long as a few passes over K cost little. Beyond, a random subset G: its own equations and the residuals of
all n rows, PASSES |G|^2 + n |G| kernel entries, are what the budget pays for, so that the cost is linear in n. The near
field sees all rows in any case. Which rows these are does not depend on the targets, so error bars are as honest as
ever.
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

PASSES = 8.0  # over G, to a residual of 1e-2, checks and factorisations included (benchmarks/solvers.py)
FEWEST_ROWS = 2000  # with far weights, if there are any
PROBED_ROWS = 16_384  # rows of the tile that the speed is measured on: some 10 ms
TIME_SHARE = 0.75  # of the time that is left; the rest is for compilation and the last check


def choose_num_far(
    operator: KernelOperator, prior: PriorPaths | None, solver: Solver, run: Run, fewest: int = 0, or_none: bool = True
) -> int:
    """How many rows get far weights: all of them, unless that costs more kernel entries than the budget has.

    `fewest`: those that have weights already. `or_none`: whether it may be no row at all, as there is a near field.
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
    """The run over some of n rows: as many kernel entries, and a file whose name says how many rows there are."""
    if rows == n:
        return run
    passes = None if run.max_passes is None else run.max_passes * (n / rows) ** 2
    checkpoint = None if run.checkpoint is None else f"{os.fspath(run.checkpoint)}.{rows}-rows"
    return replace(run, max_passes=passes, checkpoint=checkpoint)


def _begun_rows(checkpoint: str | os.PathLike | None, n: int) -> int:
    """The rows that an interrupted run was solving for; 0 if there is none."""
    if checkpoint is None:
        return 0
    path = Path(checkpoint)
    files = path.parent.glob(f"{glob.escape(path.name)}.*-rows")
    counts = [file.suffix.removeprefix(".").removesuffix("-rows") for file in files]
    return max((int(count) for count in counts if count.isdigit() and int(count) < n), default=0)


def _entries_in_time(operator: KernelOperator, prior: PriorPaths | None, deadline: Deadline) -> float:
    """Kernel entries that can be computed in the time that is left once functions are drawn at all rows."""
    own = operator.layout.read_own(operator.x)
    points, kernel, x = own[: policy.POINT_BLOCK], operator.kernel, own[:PROBED_ROWS]
    num_columns = 1 if prior is None else 1 + prior.weights.shape[1]
    product = CrossProduct(kernel, x, np.zeros((len(x), num_columns), operator.dtype), Local(len(x)))
    per_entry = _seconds(lambda: evaluate(product, points, x, kernel)) / max(len(points) * len(x), 1)
    per_draw = 0.0 if prior is None else _seconds(lambda: evaluate(prior, points, x, kernel)) / max(len(points), 1)
    seconds = TIME_SHARE * deadline.left - per_draw * len(own)
    return max(seconds, 0.0) / per_entry * operator.layout.num_devices


def _seconds(work: Callable[[], Any]) -> float:
    """What it takes the second time: the first time it is compiled."""
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
