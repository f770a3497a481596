"""The roads not taken: descent put together from a gradient estimate, an update and an average.

The paper arrives at SDD by choosing each of these three parts among alternatives (its Figures 1 to 4). This file has
the alternatives, so that the choices can be examined again: `Descent(Coordinates(512), Nesterov(0.9), Geometric(r))` is
SDD, step for step. For solving systems, use `SDD`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from dualgp._checks import check_count, check_positive
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, PerColumn, Prepared, check_tol
from dualgp.solvers.sgd import FEATURE_POOL
from dualgp.solvers.stopping import Rules

# ---- Part one: the gradient ------------------------------------------------------------------------------------------


class Estimate(eqx.Module):
    """An estimate of a gradient at `point`, (n, s), unbiased except where said, and one of ||b - A point||^2."""

    @abstractmethod
    def __call__(self, operator: Operator, b: Columns, point: Columns, key: RandomKey) -> tuple[Columns, PerColumn]:
        """Gradient and squared residual."""

    @abstractmethod
    def passes(self, n: int) -> float:
        """Kernel entries used, in units of n^2."""

    def prepare(self, operator: Operator, key: RandomKey) -> Estimate:
        """With what must be drawn beforehand."""
        return self


class FullDual(Estimate):
    """The gradient of the dual objective: g = (K + noise I) a - b."""

    def __call__(self, operator: Operator, b: Columns, point: Columns, key: RandomKey) -> tuple[Columns, PerColumn]:
        residual = operator @ point - b
        return residual, _squared(residual)

    def passes(self, n: int) -> float:
        return 1.0


class FullPrimal(Estimate):
    """The gradient of the primal (kernel ridge regression) objective: g = K ((K + noise I) a - b)."""

    def __call__(self, operator: Operator, b: Columns, point: Columns, key: RandomKey) -> tuple[Columns, PerColumn]:
        residual = operator @ point - b
        return operator @ residual - jnp.asarray(operator.noise.variance, b.dtype) * residual, _squared(residual)

    def passes(self, n: int) -> float:
        return 2.0


class Coordinates(Estimate):
    """Random coordinates of the dual gradient (SDD's choice): the noise is multiplicative, it vanishes with g."""

    batch_size: int = 512

    def __call__(self, operator: Operator, b: Columns, point: Columns, key: RandomKey) -> tuple[Columns, PerColumn]:
        index, scale = _batch(operator, key, self.batch_size)
        rows = operator.residual(index, point, b)
        return jnp.zeros_like(b).at[index].add(scale * rows), scale * _squared(rows)

    def passes(self, n: int) -> float:
        return self.batch_size / n


class Trap(Estimate):
    """Only K a is subsampled, noise a - b is kept whole. Less variance in one term, but it no longer vanishes."""

    batch_size: int = 512

    def __call__(self, operator: Operator, b: Columns, point: Columns, key: RandomKey) -> tuple[Columns, PerColumn]:
        index, scale = _batch(operator, key, self.batch_size)
        rows = operator.noiseless.rows(index, point)
        whole = jnp.asarray(operator.noise.variance, b.dtype) * point - b
        return whole.at[index].add(scale * rows), scale * _squared(rows + whole[index])

    def passes(self, n: int) -> float:
        return self.batch_size / n


class RandomFeatures(Estimate):
    """K a estimated by random features z: noise a - b + z z^T a, with `num` features drawn anew each step."""

    num: int = 100
    pool: Any = None

    def __call__(self, operator: Operator, b: Columns, point: Columns, key: RandomKey) -> tuple[Columns, PerColumn]:
        z = operator.feature_matrix(self.pool.resampled(key, self.num))
        gradient = jnp.asarray(operator.noise.variance, b.dtype) * point - b + z @ (z.T @ point)
        return gradient, _squared(gradient)

    def passes(self, n: int) -> float:
        return self.num / n

    def prepare(self, operator: Operator, key: RandomKey) -> RandomFeatures:
        return RandomFeatures(self.num, operator.features(key, FEATURE_POOL))


# ---- Part two: the update --------------------------------------------------------------------------------------------


class Update(eqx.Module):
    """How a gradient changes the iterate. `memory` is whatever it carries along."""

    @abstractmethod
    def init(self, alpha: Columns) -> Any:
        """The memory before the first step."""

    @abstractmethod
    def lookahead(self, alpha: Columns, memory: Any) -> Columns:
        """Where the gradient is to be taken."""

    @abstractmethod
    def __call__(self, alpha: Columns, memory: Any, gradient: Columns, step: Array) -> tuple[Columns, Any]:
        """The next iterate and memory."""


class Plain(Update):
    """alpha - step * g."""

    def init(self, alpha: Columns) -> None:
        return None

    def lookahead(self, alpha: Columns, memory: None) -> Columns:
        return alpha

    def __call__(self, alpha: Columns, memory: None, gradient: Columns, step: Array) -> tuple[Columns, None]:
        return alpha - step * gradient, None


class Nesterov(Update):
    """v = rho v - step * g(alpha + rho v);  alpha + v."""

    momentum: float = 0.9

    def init(self, alpha: Columns) -> Columns:
        return jnp.zeros_like(alpha)

    def lookahead(self, alpha: Columns, memory: Columns) -> Columns:
        return alpha + self.momentum * memory

    def __call__(self, alpha: Columns, memory: Columns, gradient: Columns, step: Array) -> tuple[Columns, Columns]:
        velocity = self.momentum * memory - step * gradient
        return alpha + velocity, velocity


class Adaptive(Update):
    """An optimiser of optax that rescales each coordinate: "adagrad", "rmsprop" or "adam"."""

    name: str = "adam"

    def __check_init__(self) -> None:
        if self.name not in _RESCALINGS:
            raise ValueError(f"There is no optimiser {self.name!r} here. Choose one of {', '.join(_RESCALINGS)}.")

    def init(self, alpha: Columns) -> Any:
        return _rescaling(self.name).init(alpha)

    def lookahead(self, alpha: Columns, memory: Any) -> Columns:
        return alpha

    def __call__(self, alpha: Columns, memory: Any, gradient: Columns, step: Array) -> tuple[Columns, Any]:
        change, memory = _rescaling(self.name).update(gradient, memory)
        return alpha - step * change, memory


_RESCALINGS = {"adagrad": "scale_by_rss", "rmsprop": "scale_by_rms", "adam": "scale_by_adam"}


def _rescaling(name: str) -> Any:
    import optax  # a fifth of the package's import time, for the ablations alone

    return getattr(optax, _RESCALINGS[name])()


# ---- Part three: the average -----------------------------------------------------------------------------------------


class Average(eqx.Module):
    """What is returned of a sequence of iterates."""

    @abstractmethod
    def __call__(self, average: Columns, alpha: Columns, step: Int[Array, ""], num_steps: int) -> Columns:
        """The average after iterate number `step` (from 1)."""


class Last(Average):
    """No averaging."""

    def __call__(self, average: Columns, alpha: Columns, step: Int[Array, ""], num_steps: int) -> Columns:
        return alpha


class Arithmetic(Average):
    """The mean of the iterates in the tail of the run."""

    start: float = 0.7  # share of the steps after which it begins

    def __call__(self, average: Columns, alpha: Columns, step: Int[Array, ""], num_steps: int) -> Columns:
        count = jnp.maximum(step - int(self.start * num_steps), 1).astype(alpha.dtype)
        return average + (alpha - average) / count


class Geometric(Average):
    """r alpha + (1 - r) average."""

    r: float = 1e-3

    def __call__(self, average: Columns, alpha: Columns, step: Int[Array, ""], num_steps: int) -> Columns:
        return self.r * alpha + (1 - self.r) * average


# ---- Put together ----------------------------------------------------------------------------------------------------


class DescentState(NamedTuple):
    """What the next step needs."""

    alpha: Columns
    memory: Any
    average: Columns
    step: Int[Array, ""]


class Descent(IterativeSolver):
    """Descent with an estimate, an update and an average of your choice; `step_size` is beta * n."""

    estimate: Estimate = Coordinates()
    update: Update = Nesterov()
    average: Average = Geometric()
    _: KW_ONLY
    step_size: float
    num_steps: int = 100_000
    tol: float = 1e-2

    def __check_init__(self) -> None:
        check_positive(self.step_size, "step_size")
        check_count(self.num_steps, "num_steps", 1)
        check_tol(self.tol)

    def prepare(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[PreparedDescent, float]:
        return PreparedDescent(self, self.estimate.prepare(operator, key)), 0.0


class PreparedDescent(Prepared):
    """Descent with an estimate that has drawn what it needs."""

    settings: Descent
    estimate: Estimate

    rules: ClassVar[Rules] = Rules(patience=math.inf)  # to see where an alternative gets stuck is what it is for

    def init(self, operator: Operator, b: Columns, start: Columns) -> DescentState:
        return DescentState(start, self.settings.update.init(start), start, jnp.int32(0))

    def step(
        self, operator: Operator, b: Columns, state: DescentState, key: RandomKey
    ) -> tuple[DescentState, PerColumn]:
        alpha, memory, average, step = state
        point = self.settings.update.lookahead(alpha, memory)
        gradient, squared = self.estimate(operator, b, point, key)
        alpha, memory = self.settings.update(
            alpha, memory, gradient, jnp.asarray(self.settings.step_size / operator.n, b.dtype)
        )
        average = self.settings.average(average, alpha, step + 1, self.settings.num_steps)
        return DescentState(alpha, memory, average, step + 1), squared

    def weights(self, state: DescentState) -> Columns:
        return state.average

    def passes_per_step(self, n: int) -> float:
        return self.estimate.passes(n)

    def max_steps(self, n: int) -> int:
        return self.settings.num_steps

    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        step_size = self.settings.step_size
        return f"step_size={step_size:.3g} is too large for this combination. Pass a tenth of it, or use SDD()."


def _batch(operator: Operator, key: RandomKey, size: int) -> tuple[Int[Array, " batch"], float]:
    return jax.random.randint(key, (size,), 0, operator.n, jnp.int32), operator.n / size


def _squared(columns: Columns) -> PerColumn:
    return jnp.sum(columns**2, axis=0)
