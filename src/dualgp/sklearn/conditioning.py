"""What fits to arrays and to files of rows share: valid input, scales, one deadline, how a model is conditioned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from dualgp._arrays import refuse_fork
from dualgp._checks import SMALLEST_SPREAD, check_size, refuse_other_kinds
from dualgp._random import subkey
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning import Learned, learn
from dualgp.learning.learn import time_to_learn
from dualgp.learning.parameters import LEAST_NOISE
from dualgp.posterior import Posterior
from dualgp.solvers import DivergenceWarning
from dualgp.solvers.stopping import Deadline

AT_FLOOR = "The noise is at its floor: that of rounding, or a millionth of the variance."
DTYPES = [np.float64, np.float32, np.uint8]  # X of these is taken as it is; others become the first


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

    def learn(
        self,
        model: GaussianProcess,
        fixed: Sequence[str],
        checkpoint: Any,
        watch: Any = None,
        choose_kernel: bool = False,
    ) -> Learned:
        """A better model, from `model` on, with a noise that is not below the floor; it is said where it is there."""
        limit = time_to_learn(self.deadline, len(self.targets))
        run = {"key": subkey(self.key, "learn"), "max_seconds": limit, **self.settings}
        run |= {} if watch is None else {"progress": watch}
        first = {"choose_kernel": choose_kernel, "checkpoint": checkpoint}
        learned = learn(model, self.x, self.targets, fixed=fixed, **run, **first)
        noise, least = float(learned.model.noise), LEAST_NOISE * float(np.var(self.targets))
        if "noise" in fixed or noise >= max(self.noise_floor, 1.01 * least):
            return learned
        if noise >= self.noise_floor:
            return replace(learned, message=f"{learned.message} {AT_FLOOR}")
        model = replace(learned.model, noise=np.asarray(self.noise_floor))
        if not learned.finished:  # there is no time to learn the rest again
            return replace(learned, model=model, posterior=None)
        rest = learn(model, self.x, self.targets, fixed=(*fixed, "noise"), **run)
        return replace(rest, message=f"{learned.message} {AT_FLOOR} {rest.message}", kernels=learned.kernels)


def one_if_constant(std: Any, values: np.ndarray, largest: Any = None) -> np.ndarray:
    """The standard deviation of each column of `values`; 1 where it is constant up to rounding.

    `largest`: the largest absolute value of each column, if `values` are not all of them.
    """
    largest = np.abs(values).max(axis=0) if largest is None else largest
    return np.where(std > 16 * np.finfo(np.result_type(values.dtype, np.float32)).eps * largest, std, 1.0)


def validated(estimator: Any, X: Any, *y: Any, reset: bool = True) -> Any:
    """Inputs, or inputs and targets in float64, or a sentence: what every call of an estimator begins with."""
    refuse_fork()
    for value, name in ((X, "X"), *((value, "y") for value in y)):
        refuse_other_kinds(value, name)
    if not y:
        X = validate_data(estimator, X, dtype=DTYPES, order="C", reset=reset)
        check_size(X, "X")
        return X
    X, targets = validate_data(estimator, X, *y, dtype=DTYPES, order="C", y_numeric=True, reset=reset)
    check_size(X, "X")
    return X, sized_targets(targets, reset)


def sized_targets(y: np.ndarray, reset: bool) -> np.ndarray:
    """Targets in float64, neither too large nor, where units are taken from them, too close together to be squared."""
    targets = y.astype(np.float64)
    check_size(targets, "y")
    if reset and 0 < np.ptp(targets) < SMALLEST_SPREAD:
        raise ValueError(f"y varies by {np.ptp(targets):.3g} only: too little to be squared. Choose a smaller unit.")
    return targets


def finite_score(score: Callable[..., float], estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """A score, or a sentence where squares leave the range of numbers. That of a single row is NaN, with a warning."""
    refuse_other_kinds(y, "y")
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(score(estimator, X, y, sample_weight))
    if not np.isfinite(found) and len(y) > 1:
        raise ValueError("R^2 is not a finite number: y is too large or too small to be squared. Choose another unit.")
    return found
