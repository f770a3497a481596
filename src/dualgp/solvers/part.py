"""Budgets below two passes, spent on as many rows as they are enough for.

Before block descent has gone over the data once, most rows have no weight at all, or one that was found before their
neighbours had any. If it must stop there, two passes over fewer rows predict better: on etopo20 (525,366 rows) two
minutes lead to an RMSE of 0.126 instead of 0.301. The rows do not depend on b, so that the variance of samples is not
below the exact one either.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from dualgp._random import generator
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator

MANY_ROWS = 100_000  # below, a pass takes less than a minute, and no one stops there
FEWEST_ROWS = 20_000
ENOUGH_PASSES = 2.0


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


def rows_for(passes: float, n: int) -> int:
    """Of n, n / sqrt(2), n / 2 and so on, the most rows over which `passes` over all n are two.

    Not in between: a run that was interrupted and times its steps anew shall mostly come to the same number.
    """
    if passes >= ENOUGH_PASSES:
        return n
    halvings = math.ceil(math.log2(ENOUGH_PASSES / max(passes, 1e-12)))
    return min(n, max(FEWEST_ROWS, round(n * 2.0 ** (-halvings / 2))))


def take_part(operator: Operator, b: Columns, rows: int, key: RandomKey) -> Part:
    """So many rows at random, and their right-hand sides."""
    chosen = np.sort(generator(key).choice(operator.n, rows, replace=False)).astype(np.int32)
    part = operator.part(chosen)
    return Part(chosen, part, part.place(operator.collect(b)[chosen]))
