"""Rows with equal inputs, merged exactly into one.

Rows i of a group, y_i = f(x) + N(0, noise * scale_i), say about f what one row does:

    mean = S sum y_i / scale_i,        variance noise * S,        1 / S = sum 1 / scale_i

and about the noise, for each of k outputs,

    log p(y | f) - log p(mean | f)  =  -1/2 [(c - 1) log(2 pi noise) + sum log scale_i - log S + spread / noise]

with c rows and spread = sum (y_i - mean)^2 / scale_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from dualgp._checks import as_columns
from dualgp._types import AnyArray
from dualgp.operators.noise import Noise

COPIES_BY_CHANCE = 3.0  # times as many equal targets at equal inputs as chance explains: then rows were copied
FEW_COPIES = 0.2  # of the rows: as many may have been entered twice by accident


class GivenRows(eqx.Module):
    """The rows as they were given, where some have equal inputs: which of the merged rows each is in, and its noise."""

    place: Int[AnyArray, " n"]
    noise: Noise


class Merged(NamedTuple):
    """m rows with different inputs, in the order in which these come first, in place of n.

    `scale`: S, the variance of each mean relative to the noise. `repeats` = c - 1, `log_scale` = sum log scale_i -
    log S and `spread`, summed over outputs, are what the likelihood of the noise needs. `first`: a row of the data for
    each. `group`: which of the m each of the n rows is in.
    """

    x: AnyArray
    y: Float[np.ndarray, " m"] | Float[np.ndarray, "m k"]
    scale: Float[np.ndarray, " m"]
    repeats: Int[np.ndarray, " m"]
    log_scale: Float[np.ndarray, " m"]
    spread: Float[np.ndarray, " m"]
    first: Int[np.ndarray, " m"]
    group: Int[np.ndarray, " n"]


def merge_rows(
    x: AnyArray,
    y: Float[np.ndarray, " n"] | Float[np.ndarray, "n k"],
    scale: Float[np.ndarray, " n"] | None = None,
) -> Merged:
    """The rows with equal inputs merged. `scale`: the variances of y relative to each other, by default equal."""
    x, n = np.asarray(x), len(y)
    scale = np.ones(n) if scale is None else np.asarray(scale, np.float64)
    first, group = _groups(x)
    order = np.argsort(first)  # of groups, as they come in the data
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first, group = first[order], place[group]
    m = len(first)
    merged_scale = 1.0 / np.bincount(group, 1.0 / scale, m)
    columns = as_columns(y)
    centre = columns[first]  # close to all of a group: differences from it lose no digits
    means, spread = centre.copy(), np.zeros(m)
    for column, mean, middle in zip(columns.T, means.T, centre.T, strict=True):
        mean += merged_scale * np.bincount(group, (column - middle[group]) / scale, m)
        spread += np.bincount(group, (column - mean[group]) ** 2 / scale, m)
    log_scale = np.bincount(group, np.log(scale), m) - np.log(merged_scale)
    repeats = np.bincount(group, minlength=m) - 1
    means = means.reshape(m, *np.shape(y)[1:])
    return Merged(x[first], means, merged_scale, repeats, log_scale, spread, first.astype(np.int32), group)


def merge_equal_inputs(
    x: AnyArray, y: Float[np.ndarray, "n k"], noise: Noise
) -> tuple[AnyArray, Float[np.ndarray, "m k"], Noise, GivenRows | None]:
    """Inputs, targets and noise of rows with different inputs that say the same about f, and the rows as given.

    None where all inputs are different: then nothing changes.
    """
    if not num_repeats(x):
        return x, y, noise, None
    merged = merge_rows(x, y, None if noise.is_uniform else np.asarray(noise.variance))
    variance = merged.scale * np.asarray(noise.variance) if noise.is_uniform else merged.scale
    return merged.x, merged.y, Noise(variance), GivenRows(merged.group.astype(np.int32), noise)


def num_repeats(x: AnyArray) -> int:
    """How many rows have the inputs of an earlier one."""
    keys = np.sort(row_keys(np.asarray(x).T))  # np.unique of 1.8 million takes 1.6 s, this 0.01
    return int(np.count_nonzero(keys[1:] == keys[:-1]))


def is_copy(columns: Sequence[np.ndarray] | np.ndarray, y: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Which rows are copies of earlier ones: a copy of a record is not a second measurement of it.

    Rows with equal inputs that differ in y are none, and all of their group stay; nor are equal ones of a target with
    few values, as long as no more of them are equal than by chance.
    """
    _, first, group = np.unique(row_keys(columns), return_index=True, return_inverse=True)
    y = y if y.ndim == 1 else row_keys(y.T)
    agrees = np.ones(len(first), bool)
    np.logical_and.at(agrees, group, y == y[first][group])
    copies = np.ones(len(y), bool)
    copies[first] = False
    disagreeing = np.count_nonzero(copies & (y != y[first][group]))
    share = np.unique(y, return_counts=True)[1] / len(y)
    chance = float(share @ share)
    copies &= agrees[group]
    by_chance = disagreeing * chance / (1.0 - chance) if chance < 1 else np.inf
    return copies if np.count_nonzero(copies) > COPIES_BY_CHANCE * by_chance else np.zeros(len(y), bool)


def entered_twice(columns: Sequence[np.ndarray] | np.ndarray, y: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Copies, where they are few: with more of them rows are there several times because they are to count so often."""
    copies = is_copy(columns, y)
    return copies if np.count_nonzero(copies) <= FEW_COPIES * len(copies) else np.zeros(len(copies), bool)


def row_keys(columns: Sequence[np.ndarray] | np.ndarray) -> UInt64[np.ndarray, " n"]:
    """A 64-bit sum of each row's numbers, equal where rows are: sorting whole rows takes minutes."""
    odd = np.random.default_rng(0).integers(0, 2**63, len(columns), np.uint64) * 2 + 1
    key = np.zeros(len(columns[0]), np.uint64)
    for column, factor in zip(columns, odd, strict=True):
        bits = (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # adding zero turns -0.0 into 0.0
        key = key + (bits ^ (bits >> np.uint64(29))) * factor  # the low bits of most numbers are zeros
    return key


def _groups(x: np.ndarray) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " n"]]:
    """The first row of each group of equal rows, and the group of each row."""
    _, first, group = np.unique(row_keys(x.T), return_index=True, return_inverse=True)
    differs = np.flatnonzero((x != x[first[group]]).any(axis=1))
    if len(differs):  # different rows with equal sums: each of them is a group of its own
        group = group.copy()
        group[differs] = len(first) + np.arange(len(differs))
        first = np.concatenate([first, differs])
    return first, group
