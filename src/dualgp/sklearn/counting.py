"""Which rows count, and how much: weights, and copies of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dualgp._checks import as_float_array
from dualgp.operators.merging import FEW_COPIES, is_copy, row_keys


class Counted(NamedTuple):
    """The rows to keep, their weights (None if all are 1), and sentences about the other rows."""

    kept: Bool[np.ndarray, " n"]
    weights: Float[np.ndarray, " kept"] | None
    said: tuple[str, ...] = ()

    def of(self, array: np.ndarray) -> np.ndarray:
        """The kept rows of an array."""
        return array if self.kept.all() else array[self.kept]


def check_weights(sample_weight: Any, n: int) -> Float[np.ndarray, " n"]:
    """Weights of n rows in float64; others are refused."""
    weights = np.asarray(as_float_array(sample_weight, "sample_weight"), np.float64)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have one weight for each of the {n} row(s), got shape {weights.shape}.")
    bad = ~((weights >= 0) & np.isfinite(weights))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight must be finite and not negative, but {int(bad.sum())} value(s) are not; the first is "
            f"sample_weight[{first}] = {weights[first]:.4g}. A weight of 0 leaves a row out."
        )
    if not weights.any():
        raise ValueError("All weights in sample_weight are zero: no row is left. Give some rows a positive weight.")
    return weights


def count_rows(columns: Sequence[np.ndarray] | np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Counted:
    """Rows of weight 0 are left out. Copies of a row become one row, with the sum of their weights if weights are given
    or more than a fifth of the rows are copies, otherwise with weight 1 as rows entered twice.
    """
    copies, said = is_copy(columns, y), []
    is_few = weights is None and np.count_nonzero(copies) <= FEW_COPIES * len(copies)
    if copies.any():
        often = "count once" if is_few else "count as often as they are there"
        said.append(f"{np.count_nonzero(copies):,} rows are copies of others and {often}.")
    if not copies.any() or is_few:
        weights = None if weights is None or np.all(weights == 1.0) else weights
        return Counted(~copies, weights, tuple(said))
    group = np.unique(row_keys([*columns, *y.reshape(len(y), -1).T]), return_inverse=True)[1]
    total = np.bincount(group, weights)
    return Counted(~copies, total[group[~copies]], tuple(said))


def without_zeros(weights: Any, n: int) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, " some"] | None, str]:
    """The rows of positive weight, their weights, and a sentence about the other rows."""
    if weights is None:
        return np.ones(n, bool), None, ""
    weights = check_weights(weights, n)
    some = weights > 0
    zeros = n - np.count_nonzero(some)
    return some, weights[some], f"{zeros:,} rows have a weight of zero and were left out." if zeros else ""
