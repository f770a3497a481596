"""Budgets that are too short to converge on all rows, spent on as many rows as they are enough for.

Before block descent has gone over the data once, most rows have no weight at all, or one that was found before their
neighbours had any, and where there is hardly any noise a few passes are not enough either. If it must stop there,
fewer rows and more passes predict better: on etopo20 (525,366 rows) two minutes lead to an RMSE of 0.126 instead of
0.301. How many passes are enough is seen on a probe, few rows that take a twentieth of the budget. Which rows these
are does not depend on b, and their number only as the moment of stopping does: error bars are as honest.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dualgp._random import generator
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import Trace

MANY_ROWS = 100_000  # below, a pass takes less than a minute, and no one stops there
FEWEST_ROWS = 20_000
PLENTY_OF_PASSES = 10.0
PROBE_SHARE = 0.05  # of the budget, for PLENTY_OF_PASSES over the rows of the probe
SMALL_ERROR = 0.15  # of solving, against that of predicting
# Passes that are enough grow with the number of rows to about this power. Seen: 0.1 to 0.2 on etopo20 and, beyond
# 115,000 rows, nearly 1 on houseelectric, where there is hardly any noise and blocks do not grow any more.
GROWTH = 0.5


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
