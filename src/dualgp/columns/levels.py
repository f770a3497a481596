"""The effects of the values of text columns on the target, by a model with random effects.

    y = base @ b + sum over columns c of effect_c[value of c] + error,      effect_c ~ N(0, between_c)

found by backfitting. An effect shrinks towards zero by how little is known about it, and its posterior standard
deviation, the doubt, is a second coordinate: E (e - e')^2 = (m - m')^2 + doubt^2 + doubt'^2, so that rare and unknown
values are as far from the others as their effects probably are.

The effects that are inputs of a row are found without it, from the other folds. So is the whole model: if the
effects of another column had seen the row, their residuals would reveal its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

SWEEPS = 5
FOLDS, FOLDS_OF_MANY, MANY = 10, 5, 50_000  # a backfit of 300,000 rows takes half a second
RIDGE = 1e-3  # times the number of rows: the penalty on standardised base columns
LEAST_BETWEEN = 1e-2  # share of the variance within values: effects are never shrunk to zero
# Whole numbers are codes if there are so many different ones and so many rows for each, if their effects have this
# share of the variance within them, and if neighbouring ones differ by this share of what any two do: 0.44 to 1.2 for
# communes and people, 0.03 to 0.21 for years and ages. With fewer rows for each, effects without a row reveal its
# target: with 6 rows a person the 90 % band covered 84 %, and 92 % with the numbers alone (benchmarks/tables.py).
LEAST_CODES, LEAST_EACH, LEAST_SHARE, NO_ORDER = 20, 20, 0.02, 1 / 3


class Effects(NamedTuple):
    """One number for each value, and a last one for an unknown value; `rows`: those of each row, found without it."""

    effects: Float[np.ndarray, " levels"]
    doubts: Float[np.ndarray, " levels"]
    rows: Float[np.ndarray, "n 2"]


def fit_effects(
    codes: Sequence[Int[np.ndarray, " n"]],
    sizes: Sequence[int],
    base: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, " n"],
) -> list[Effects]:
    """The effects of columns of codes with so many values, given each other and a ridge regression on `base`."""
    target = (y - y.mean()) / (y.std() or 1.0)
    base = (base - base.mean(axis=0)) / np.where(base.std(axis=0) > 0, base.std(axis=0), 1.0)
    num_folds = FOLDS if len(y) <= MANY else FOLDS_OF_MANY
    fold = np.random.default_rng(0).permutation(len(y)) % num_folds
    rows = [np.empty((len(y), 2)) for _ in codes]
    for number in range(num_folds):
        kept, own = fold != number, fold == number
        found = _backfit([code[kept] for code in codes], sizes, base[kept], target[kept])
        for row, code, effect in zip(rows, codes, found, strict=True):
            row[own] = effect[:, code[own]].T
    whole = _backfit(codes, sizes, base, target)
    return [Effects(effect[0], effect[1], row) for effect, row in zip(whole, rows, strict=True)]


def residual(base: Float[np.ndarray, "n p"], y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """What a ridge regression on `base` leaves of y."""
    scale = base.std(axis=0)
    base = (base - base.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    gram = base.T @ base + RIDGE * len(base) * np.eye(base.shape[1])
    return y - y.mean() - base @ np.linalg.solve(gram, base.T @ (y - y.mean()))


def are_codes(values: Float[np.ndarray, " n"], rest: Float[np.ndarray, " n"]) -> bool:
    """Whether numbers stand for something, such as places: what they do to `rest` does not follow their order.

    With the means m_i of n_i rows each, less what is scatter, (m_i+1 - m_i)^2 / 2 is compared with the variance of m_i.
    """
    if not np.array_equal(values, np.round(values)):
        return False
    numbers, codes, count = np.unique(values, return_inverse=True, return_counts=True)
    n, num = len(values), len(numbers)
    if num < LEAST_CODES or n < LEAST_EACH * num:
        return False
    means = np.bincount(codes, rest) / count
    within = float(np.sum((rest - means[codes]) ** 2)) / (n - num)
    between = (float(count @ means**2) - (num - 1) * within) / (n - float(count @ count) / n)
    if between < LEAST_SHARE * within or within == 0:
        return False
    scatter = within / count[1:] + within / count[:-1]
    differ = np.average(np.diff(means) ** 2 - scatter, weights=1.0 / (2.0 * between + scatter)) / 2.0
    return bool(differ > NO_ORDER * between)


def _backfit(
    codes: Sequence[np.ndarray], sizes: Sequence[int], base: np.ndarray, target: np.ndarray
) -> list[Float[np.ndarray, "2 levels"]]:
    """Effects and doubts of each column."""
    gram = base.T @ base + RIDGE * len(base) * np.eye(base.shape[1])
    found, parts = [np.zeros((2, size + 1)) for size in sizes], np.zeros((len(codes), len(target)))
    for _ in range(SWEEPS):
        rest = target - parts.sum(axis=0)
        explained = base @ np.linalg.solve(gram, base.T @ rest)
        for i, (own, size) in enumerate(zip(codes, sizes, strict=True)):
            rest = target - explained - parts.sum(axis=0) + parts[i]
            found[i] = _shrunk_means(own, size, rest)
            parts[i] = found[i][0][own]
    return found


def _shrunk_means(codes: np.ndarray, size: int, rest: np.ndarray) -> Float[np.ndarray, "2 levels"]:
    """Posterior means and standard deviations of the effects on `rest`, with variances by moments."""
    count: Any = np.bincount(codes, minlength=size + 1)
    total = np.bincount(codes, rest, size + 1)
    n, num, squares = len(rest), int(np.count_nonzero(count)), float(rest @ rest)
    explained = float(np.sum(total**2 / np.maximum(count, 1)))
    within: float = float(max((squares - explained) / max(n - num, 1), 1e-6 * squares / n, 1e-12))
    between = (explained - float(rest.sum()) ** 2 / n - (num - 1) * within) / max(n - float(np.sum(count**2)) / n, 1.0)
    precision: Any = count / within + 1.0 / max(between, LEAST_BETWEEN * within)
    return np.stack([total / within / precision, np.sqrt(1.0 / precision)])
