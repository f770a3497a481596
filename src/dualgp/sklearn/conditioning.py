"""Steps that all fits share: checks of the input, scales, one deadline, learning and conditioning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import validate_data

from dualgp._arrays import refuse_fork
from dualgp._checks import check_size, check_spread, refuse_other_kinds
from dualgp._random import subkey
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.kernels import Kernel
from dualgp.learning import Learned, learn
from dualgp.learning.learn import time_to_learn
from dualgp.learning.parameters import LEAST_NOISE
from dualgp.learning.robust import INNER, OF_NORMAL, find_outliers
from dualgp.learning.varying import noise_field
from dualgp.posterior import Posterior
from dualgp.solvers import DivergenceWarning
from dualgp.solvers.stopping import Deadline

AT_FLOOR = "The noise is at its floor: that of rounding, or a millionth of the variance."
DTYPES = [np.float64, np.float32, np.uint8]  # X of other dtypes becomes the first


@dataclass(frozen=True, eq=False)
class Conditioning:
    """The data and the settings with which a fit learns and conditions models.

    `noise_floor`: the smallest noise of learning, relative to the variance of the targets. `factors`: the factor of
    the noise of each row, if not 1.
    """

    x: Any
    targets: Any
    key: RandomKey
    deadline: Deadline
    settings: dict[str, Any]
    noise_floor: float = 0.0
    factors: Float[np.ndarray, " n"] | None = None

    def __call__(self, model: GaussianProcess, **more: Any) -> Posterior:
        """The posterior of a model, within the remaining time."""
        noise = None if self.factors is None else float(model.noise) * self.factors
        run = {"key": subkey(self.key, "condition"), "max_seconds": self.deadline, **self.settings, **more}
        run["noise"] = noise
        with warnings.catch_warnings():  # divergence may have a remedy here
            warnings.simplefilter("ignore", DivergenceWarning)
            return model.condition(self.x, self.targets, **run)

    def learn(
        self,
        model: GaussianProcess,
        fixed: Sequence[str],
        checkpoint: Any,
        watch: Any = None,
        choose_kernel: bool = False,
        robust: bool = False,
    ) -> Learned:
        """Learn, starting from `model`, with a noise of at least the floor; the message says if the noise is at it."""
        limit = time_to_learn(self.deadline, len(self.targets))
        run = {"key": subkey(self.key, "learn"), "max_seconds": limit, **self.settings, **self._noise}
        run |= ({} if watch is None else {"progress": watch}) | {"robust": robust}
        first = {"choose_kernel": choose_kernel, "checkpoint": checkpoint}
        targets, varies = self._varying
        learned = learn(model, self.x, targets, fixed=fixed, **run, **first)
        spread = inner_scale(targets) ** 2 if robust else float(np.mean(np.var(targets, axis=0)))
        noise, least = float(learned.model.noise), LEAST_NOISE * spread / self._unit
        floor = self.noise_floor / self._unit
        if "noise" in fixed or noise >= max(floor, 1.01 * least):
            return _with_constants(learned, varies)
        if noise >= floor:
            return _with_constants(replace(learned, message=f"{learned.message} {AT_FLOOR}"), varies)
        model = replace(learned.model, noise=np.asarray(floor))
        if not learned.finished:  # there is no time to learn again
            return _with_constants(replace(learned, model=model, posterior=None), varies)
        rest = learn(model, self.x, targets, fixed=(*fixed, "noise"), **run)
        message = f"{learned.message} {AT_FLOOR} {rest.message}"
        return _with_constants(replace(rest, message=message, kernels=learned.kernels), varies)

    def with_rows_of(self, learned: Learned) -> Conditioning:
        """The same with noise and targets from robust learning."""
        if learned.targets is None or learned.noise is None:
            return self
        return replace(self, targets=learned.targets, factors=learned.noise / float(learned.model.noise))

    def weighed(self, model: GaussianProcess) -> tuple[Conditioning, str]:
        """The same with outliers of this model weighed less, and a sentence."""
        factors = np.ones(len(self.targets)) if self.factors is None else self.factors
        noise = float(model.noise) * factors
        weighing = find_outliers(model, self.x, self.targets, noise)
        targets, factors = self.targets + weighing.shift(noise), weighing.variances(noise) / float(model.noise)
        return replace(self, targets=targets, factors=factors), str(weighing)

    def varying(self, model: GaussianProcess, kernel: Kernel) -> tuple[Conditioning, GaussianProcess, Posterior]:
        """The same with input-dependent noise, the model with its mean, and the posterior of its logarithm."""
        factors = np.ones(len(self.targets)) if self.factors is None else self.factors
        key = subkey(self.key, "noise field")
        field, noise = noise_field(model, self.x, self.targets, factors, kernel, key)
        condition = replace(self, factors=factors * np.exp(np.asarray(field.mean(self.x), np.float64)))
        return condition, replace(model, noise=np.asarray(noise)), field

    @property
    def _noise(self) -> dict[str, Any]:
        return {} if self.factors is None else {"noise": self.factors, "noise_role": "factor"}

    @property
    def _unit(self) -> float:
        """The usual factor of the noise."""
        return 1.0 if self.factors is None else float(np.exp(np.mean(np.log(self.factors))))

    @property
    def _varying(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Targets to learn from, and which outputs these are: constant outputs are left out."""
        if np.ndim(self.targets) < 2:
            return self.targets, None
        varies = np.ptp(self.targets, axis=0) > 0
        return (self.targets, None) if varies.all() or not varies.any() else (self.targets[:, varies], varies)


def _with_constants(learned: Learned, varies: np.ndarray | None) -> Learned:
    """The learned model with the means of constant outputs added, which were left out."""
    if varies is None:
        return learned
    mean = np.zeros(len(varies))
    mean[varies] = learned.model.mean
    return replace(learned, model=replace(learned.model, mean=mean), posterior=None)


def inner_scale(values: Float[np.ndarray, " n"]) -> float:
    """A robust standard deviation, from the inner quantiles."""
    return float(np.quantile(np.abs(values - np.median(values)), INNER)) / OF_NORMAL


def one_if_constant(std: Any, values: np.ndarray, largest: Any = None) -> np.ndarray:
    """The standard deviation of each column of `values`; 1 where it is constant up to rounding.

    `largest`: the largest absolute value of each column, if `values` are not all of them.
    """
    largest = np.abs(values).max(axis=0) if largest is None else largest
    return np.where(std > 16 * np.finfo(np.result_type(values.dtype, np.float32)).eps * largest, std, 1.0)


def validated(estimator: Any, X: Any, *y: Any, reset: bool = True) -> Any:
    """Check inputs, or inputs and targets in float64, at the beginning of every call of an estimator."""
    refuse_fork()
    for value, name in ((X, "X"), *((value, "y") for value in y)):
        refuse_other_kinds(value, name)
    if not y:
        X = validate_data(estimator, X, dtype=DTYPES, order="C", reset=reset)
        check_size(X, "X")
        return X
    refuse_holes(*y)
    settings: dict[str, Any] = {"dtype": DTYPES, "order": "C", "y_numeric": True, "multi_output": True}
    X, targets = validate_data(estimator, X, *y, reset=reset, **settings)
    check_size(X, "X")
    return X, sized_targets(targets, reset)


def refuse_holes(y: Any) -> None:
    """Refuse rows with missing outputs."""
    try:
        missing = np.isnan(np.asarray(y, np.float64))
    except (TypeError, ValueError):  # scikit-learn raises the error
        return
    if missing.ndim == 2 and missing.shape[1] > 1 and missing.any():
        row, output = (int(i) for i in np.argwhere(missing)[0])
        raise ValueError(
            f"y has {int(missing.sum())} NaN value(s), the first in row {row}, output {output}. All outputs must be "
            "there in every row: leave such rows out, or fit that output by itself."
        )


def sized_targets(y: np.ndarray, reset: bool) -> np.ndarray:
    """Targets in float64, (n,) or (n, k), that are neither too large nor, where units are taken from them, too close
    together to be squared."""
    targets = y.astype(np.float64)
    targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    check_size(targets, "y")
    if reset:
        check_spread(targets)
    return targets


def finite_score(score: Callable[..., float], estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """A score; an error if squares overflow. The score of a single row is NaN, with a warning."""
    refuse_other_kinds(y, "y")
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(score(estimator, X, y, sample_weight))
    if not np.isfinite(found) and len(y) > 1:
        raise ValueError("R^2 is not a finite number: y is too large or too small to be squared. Choose another unit.")
    return found
