"""Rows with equal inputs, merged exactly into one.

The rows i of a group, y_i = f(x) + N(0, noise * scale_i), have the same likelihood of f as one row with

    mean = S sum y_i / scale_i,        variance noise * S,        1 / S = sum 1 / scale_i

and, for each of k outputs, a further factor that depends on the noise:

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

COPIES_BY_CHANCE = 3.0  # rows are copies if so many times as many targets are equal as by chance
FEW_COPIES = 0.2  # up to this fraction of the rows, copies are taken for rows entered twice


class GivenRows(eqx.Module):
    """The rows before merging: which of the merged rows each belongs to, and its noise."""

    place: Int[AnyArray, " n"]
    noise: Noise


class Merged(NamedTuple):
    """m rows with different inputs in place of n, in the order of first occurrence.

    `scale`: S, the variance of each mean relative to the noise. `repeats` = c - 1, `log_scale` = sum log scale_i -
    log S and `spread` (summed over outputs) give the likelihood of the noise. `first`: the first row of each group.
    `group`: the group of each of the n rows.
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
    x: AnyArray, y: Float[np.ndarray, " n"] | Float[np.ndarray, "n k"], scale: Float[np.ndarray, " n"] | None = None
) -> Merged:
    """The rows with equal inputs merged. `scale`: the variances of y relative to each other, by default equal."""
    x, n = np.asarray(x), len(y)
    scale = np.ones(n) if scale is None else np.asarray(scale, np.float64)
    first, group = _groups(x)
    order = np.argsort(first)  # sorts groups by first occurrence
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first, group = first[order], place[group]
    m = len(first)
    merged_scale = 1.0 / np.bincount(group, 1.0 / scale, m)
    columns = as_columns(y)
    centre = columns[first]  # differences within a group are small, so that no digits are lost
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
    """Inputs, targets and noise of the merged rows, and the rows before merging.

    The last one is None if all inputs are different; then nothing changes.
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
    """Which rows are copies of earlier ones. A copy of a record is not a second measurement.

    A group of rows with equal inputs has no copies if its rows differ in y. A target with few values has no copies,
    unless more of them are equal than by chance.
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
    """Copies, if they are few. If they are many, rows are meant to count as often as they occur."""
    copies = is_copy(columns, y)
    return copies if np.count_nonzero(copies) <= FEW_COPIES * len(copies) else np.zeros(len(copies), bool)


def row_keys(columns: Sequence[np.ndarray] | np.ndarray) -> UInt64[np.ndarray, " n"]:
    """A 64-bit hash of each row, equal for equal rows: sorting the rows themselves takes minutes."""
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
    if len(differs):  # different rows with equal hashes: each becomes a group
        group = group.copy()
        group[differs] = len(first) + np.arange(len(differs))
        first = np.concatenate([first, differs])
    return first, group
