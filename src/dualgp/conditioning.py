"""What fits to arrays and to files of rows share: scales, one deadline, and how a model is conditioned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualgp._random import subkey
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning import Learned, learn
from dualgp.learning.parameters import LEAST_NOISE
from dualgp.posterior import Posterior
from dualgp.solvers import DivergenceWarning
from dualgp.solvers.stopping import Deadline

AT_FLOOR = "The noise is at its floor: that of rounding, or a millionth of the variance."


@dataclass(frozen=True, eq=False)
class Conditioning:
    """What a fit conditions models on and how: data, randomness, a deadline, and further settings of `condition`.

    `noise_floor`: a variance that learning must not go below, relative to that of the targets.
    """

    x: Any
    targets: Any
    key: RandomKey
    deadline: Deadline
    settings: dict[str, Any]
    noise_floor: float = 0.0

    def __call__(self, model: GaussianProcess, **more: Any) -> Posterior:
        """The posterior of a model, in the time that is left."""
        run = {"key": subkey(self.key, "condition"), "max_seconds": self.deadline, **self.settings, **more}
        with warnings.catch_warnings():  # of divergence, which may have a remedy here
            warnings.simplefilter("ignore", DivergenceWarning)
            return model.condition(self.x, self.targets, **run)

    def learn(self, model: GaussianProcess, fixed: Sequence[str], checkpoint: Any, watch: Any = None) -> Learned:
        """A better model, from `model` on, with a noise that is not below the floor; it is said where it is there."""
        run = {"key": subkey(self.key, "learn"), "max_seconds": self.deadline, "checkpoint": checkpoint}
        run |= self.settings | ({} if watch is None else {"progress": watch})
        learned = learn(model, self.x, self.targets, fixed=fixed, **run)
        noise, least = float(learned.model.noise), LEAST_NOISE * float(np.var(self.targets))
        if "noise" in fixed or noise >= max(self.noise_floor, 1.01 * least):
            return learned
        if noise >= self.noise_floor:
            return replace(learned, message=f"{learned.message} {AT_FLOOR}")
        model = replace(learned.model, noise=np.asarray(self.noise_floor))
        if not learned.finished:  # there is no time to learn the rest again
            return replace(learned, model=model, posterior=None)
        learned = learn(model, self.x, self.targets, fixed=(*fixed, "noise"), **run | {"checkpoint": None})
        return replace(learned, message=f"{learned.message} {AT_FLOOR}")


def one_if_constant(std: Any, values: np.ndarray, largest: Any = None) -> np.ndarray:
    """The standard deviation of each column of `values`; 1 where it is constant up to rounding.

    `largest`: the largest absolute value of each column, if `values` are not all of them.
    """
    largest = np.abs(values).max(axis=0) if largest is None else largest
    return np.where(std > 16 * np.finfo(np.result_type(values.dtype, np.float32)).eps * largest, std, 1.0)


COPIES_BY_CHANCE = 3.0  # times as many equal targets at equal inputs as chance explains: then rows were copied


def distinct_rows(columns: Sequence[np.ndarray] | np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which rows are no copies of earlier ones.

    A copy of a record is not a second measurement of it: it would say that there is no noise. Rows with equal inputs
    that differ in y say how much there is, and all of them stay; so do equal ones of a target with few values.
    """
    key = np.zeros(len(y), np.uint64)
    for column, factor in zip(columns, _odd_numbers(len(columns)), strict=True):
        bits = (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # adding zero turns -0.0 into 0.0
        key = key + (bits ^ (bits >> 29)) * factor  # the low bits of most numbers are zeros
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    agrees = np.ones(len(first), bool)
    np.logical_and.at(agrees, group, y == y[first][group])
    copies = np.ones(len(y), bool)
    copies[first] = False
    disagreeing = np.count_nonzero(copies & (y != y[first][group]))
    share = np.unique(y, return_counts=True)[1] / len(y)
    chance = float(share @ share)
    copies &= agrees[group]
    by_chance = disagreeing * chance / (1.0 - chance) if chance < 1 else np.inf
    return ~copies if np.count_nonzero(copies) > COPIES_BY_CHANCE * by_chance else np.ones(len(y), bool)


def _odd_numbers(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**63, count, np.uint64) * 2 + 1
