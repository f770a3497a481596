"""Budgets that are too short to converge on all rows, spent on as many rows as they are enough for.

Before block descent has gone over the data once, most rows have no weight at all, or one that was found before their
neighbours had any, and where there is hardly any noise a few passes are not enough either. If it must stop there,
fewer rows and more passes predict better: on etopo20 (525,366 rows) two minutes led to an RMSE of 0.126 instead of
0.301. How many passes are enough is seen on a probe, few rows that take a twentieth of the budget. Which rows these
are does not depend on b, and their number only as the moment of stopping does: error bars are as honest.
"""

from __future__ import annotations

import glob
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dualgp._random import generator, subkey
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import Result, Solution, Trace

if TYPE_CHECKING:
    from dualgp.solvers.loop import Loop

MANY_ROWS = 100_000  # below, a pass takes less than a minute, and no one stops there
FEWEST_ROWS = 20_000
PLENTY_OF_PASSES = 10.0
PROBE_SHARE = 0.05  # of the budget, for PLENTY_OF_PASSES over the rows of the probe
SMALL_ERROR = 0.15  # of solving, against that of predicting
# Passes that are enough grow with the number of rows to about this power. Seen: 0 to 0.2 on etopo20 and, from 29,000 to
# 230,000 rows, on houseelectric; more beyond 480,000 rows, where blocks do not grow any more.
GROWTH = 0.25


def spend_on_part(loop: Loop) -> Result | None:
    """Where the loop's budget is too short to converge on all of many rows, let it adopt the answer for some."""
    run, n = loop.run, loop.operator.n
    is_new = run.start is None and not loop.at.trace
    if not (loop.solver.takes_part and is_new and n > MANY_ROWS and (run.max_seconds or run.max_passes)):
        return None
    rows = _begun_part(loop) or _rows_in_budget(loop)
    if rows == n:
        return None
    passes = None if run.max_passes is None else (1.0 - PROBE_SHARE) * run.max_passes
    file = None if run.checkpoint is None else f"{os.fspath(run.checkpoint)}.{rows}-rows"
    part, solution = _solve_part(loop, rows, passes, file)
    loop.adopt(*part.spread(solution.weights, loop.operator), file)
    return Result.BUDGET_REACHED if solution.result is Result.CONVERGED else solution.result


def _begun_part(loop: Loop) -> int:
    """The rows of the part that an interrupted run was at, 0 if there is none."""
    if loop.run.checkpoint is None:
        return 0
    path = Path(loop.run.checkpoint)
    files = path.parent.glob(f"{glob.escape(path.name)}.*-rows")
    found = [file.suffix.removeprefix(".").removesuffix("-rows") for file in files]
    most = max((int(rows) for rows in found if rows.isdigit() and int(rows) < loop.operator.n), default=0)
    return round(loop.operator.agreed(most))


def _rows_in_budget(loop: Loop) -> int:
    """As many rows as the budget is enough for, as seen on a probe."""
    n, seconds_per_pass = loop.operator.n, _seconds_per_pass(loop)
    passes = _passes_left(loop, seconds_per_pass)
    if passes >= PLENTY_OF_PASSES:
        return n
    probed = probe_rows(passes, n)
    part, probe = _solve_part(loop, probed, PROBE_SHARE * passes, None)
    weights, num_found = part.spread(probe.weights, loop.operator)
    if probe.result is Result.INTERRUPTED:
        loop.adopt(weights, num_found, None)
        raise KeyboardInterrupt
    needed = enough_passes(probe.trace, loop.check(weights).estimate, loop.solver.tol)
    if (timed := np.ptp(probe.trace.passes)) > 0:  # after the first chunk, which compiles
        seconds_per_pass = float(np.ptp(probe.trace.seconds) / timed) * (n / probed) ** 2
    return max(probed, rows_for(_passes_left(loop, seconds_per_pass), n, needed, probed))


def _seconds_per_pass(loop: Loop) -> float:
    """What a step takes is known after two of them, where anyone asks: the first compiles."""
    if loop.run.max_seconds is None:
        return 1.0
    loop.take(1)
    began = time.perf_counter()
    loop.take(1)
    return loop.since(began) / loop.solver.passes_per_step(loop.operator.n)


def _passes_left(loop: Loop, seconds_per_pass: float) -> float:
    """Passes over all rows that the budget still allows."""
    by_count = math.inf if loop.run.max_passes is None else loop.run.max_passes - loop.at.passes
    seconds = loop.seconds_left()
    by_clock = math.inf if seconds is None else seconds / loop.operator.agreed(seconds_per_pass)
    return max(min(by_count, by_clock), 1e-6)


def _solve_part(loop: Loop, rows: int, passes: float | None, checkpoint: str | None) -> tuple[Part, Solution]:
    """The equations of so many rows, in at most `passes` over all of them and the seconds that are left."""
    n = loop.operator.n
    part = take_part(loop.operator, loop.b, rows, subkey(loop.setup_key, 1))
    run = replace(
        loop.run,
        key=loop.step_key,
        start=jnp.zeros_like(part.b),  # a run that starts from somewhere takes no part of its own
        max_seconds=loop.seconds_left(),
        max_passes=None if passes is None else passes * (n / rows) ** 2,
        checkpoint=checkpoint,
    )
    solution = loop.requested.run(part.operator, part.b, run)
    loop.at.passes += solution.passes * (rows / n) ** 2
    return part, solution


class Part(NamedTuple):
    """The equations of some rows among themselves."""

    chosen: Int[np.ndarray, " rows"]
    operator: Operator
    b: Columns

    def spread(self, weights: Columns, operator: Operator) -> tuple[Columns, int]:
        """Weights of these rows as weights of all rows, where the others have none; and how many have some."""
        everywhere = np.zeros((operator.n, self.b.shape[1]), operator.dtype)
        everywhere[self.chosen] = self.operator.collect(weights)
        return operator.place(everywhere), int(np.count_nonzero(everywhere.any(axis=1)))


def probe_rows(passes: float, n: int) -> int:
    """Rows over which a share of `passes` over all n is plenty."""
    return _rows(n * math.sqrt(PROBE_SHARE * passes / PLENTY_OF_PASSES), n)


def enough_passes(trace: Trace, elsewhere: Float[np.ndarray, " s"], tol: float) -> float:
    """Passes after which the residual of every column was small against its error at rows that were left out.

    Or below `tol`, where the probe stopped. Then more rows help more than more passes. Of a budget for 1, 2, 3, 4.5 or
    7 passes over as many rows as it is enough for, the best was 2 to 3 on precip (residual 0.08 to 0.2, RMSE 0.65), 2
    on etopo20 (0.017, 0.089) and 4.5 on covtype (0.03, 0.17): `benchmarks/parts.py`.
    """
    is_small = (trace.residual <= np.maximum(SMALL_ERROR * elsewhere, tol)).all(axis=1)
    return float(trace.passes[np.argmax(is_small)]) if is_small.any() else 2.0 * PLENTY_OF_PASSES


def rows_for(passes: float, n: int, needed: float, probed: int) -> int:
    """The most rows over which `passes` over all n are enough, where over `probed` rows `needed` were.

    Solves needed (rows / probed)^GROWTH (rows / n)^2 = passes.
    """
    return _rows(n * (passes / needed * (probed / n) ** GROWTH) ** (1 / (2 + GROWTH)), n)


def _rows(number: float, n: int) -> int:
    return round(min(n, max(FEWEST_ROWS, number)))


def take_part(operator: Operator, b: Columns, rows: int, key: RandomKey) -> Part:
    """So many rows at random, and their right-hand sides."""
    chosen = np.sort(generator(key).choice(operator.n, rows, replace=False)).astype(np.int32)
    part = operator.part(chosen)
    return Part(chosen, part, part.place(operator.collect(b)[chosen]))
