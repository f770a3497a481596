"""The progress of a run, and the bar that shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from dualgp.solvers.base import Trace
from dualgp.solvers.stopping import Level
from dualgp.solvers.validation import Score

SMALLEST = 1e-30  # the smallest residual whose logarithm is shown


@dataclass
class Progress:
    """The progress of a run. With the solver and its state it determines the remaining run. Saved as JSON."""

    step: int
    passes: float
    seconds: float = 0.0
    level: Level = field(default_factory=Level)
    slowdowns: int = 0
    checks: int = 0
    drifts: int = 0
    check_below: float = math.inf  # after a failed check: the running residual below which to check again
    scores: list[Sequence] = field(default_factory=list)  # passes, then the fields of a `Score`
    enough: float = math.inf  # passes at which the run ends, once rows kept aside no longer improve
    trace: list[Sequence] = field(default_factory=list)  # step, passes, seconds, relative residual of each column

    def as_trace(self, num_columns: int) -> Trace:
        """The trace as arrays."""
        steps, passes, seconds, residual = zip(*self.trace, strict=True) if self.trace else ((), (), (), ())
        residuals = np.array(residual, float).reshape(-1, num_columns)
        return Trace(np.array(steps, int), np.array(passes, float), np.array(seconds, float), residuals)


@contextmanager
def progress_bar(wanted: bool, name: str, tol: float) -> Iterator[Callable[[float, float, Score | None], None]]:
    """A bar for the way of the residual from 1 to tol on a log scale, or for the steps of the budget."""
    if not wanted:
        yield lambda residual, spent, score: None
        return
    from tqdm.auto import tqdm

    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    until = f" (until {tol:.2g})" if tol > 0 else ""
    with tqdm(total=100.0, desc=name, bar_format=layout) as bar:
        seen = ""

        def show(residual: float, spent: float, score: Score | None) -> None:
            nonlocal seen
            seen = seen if score is None else f", {score.rows:,} rows kept aside: {score}"
            way = math.log(max(residual, SMALLEST)) / math.log(tol) if 0 < tol < 1 else 0.0
            bar.n = max(bar.n, 100.0 * min(1.0, max(way, spent)))
            bar.set_postfix_str(f"residual {residual:.2g}{until}{seen}")

        yield show
