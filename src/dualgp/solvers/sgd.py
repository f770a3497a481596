"""Stochastic gradient descent on the primal objective (Lin et al. 2023), the method that SDD improves on.

    g = (n / B) K[:, I] (K[I] a - b[I]) + noise * Phi Phi^T a

where 100 random features Phi, drawn anew in each step, replace K in the regulariser. The noise of the gradient does not
vanish at the solution, so it needs clipping and averaging.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dualgp._checks import check_count, check_positive_number
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, PerColumn, Prepared, check_momentum, check_tol
from dualgp.solvers.stopping import Rules

FEATURE_POOL = 20_000  # features, drawn once; each step uses a few of them at random


class SGDState(NamedTuple):
    """Iterate, velocity, and geometric average."""

    alpha: Columns
    velocity: Columns
    average: Columns


class SGD(IterativeSolver):
    """Primal stochastic gradient descent with Nesterov momentum, clipping and geometric averaging.

    **Arguments:**

    - `step_size`: of the gradient divided by n; published: 0.5 for means, 0.1 for samples.
    - `batch_size`, `num_steps`, `momentum`, `averaging` (100 / num_steps by default): as for `SDD`.
    - `num_features`: features in the regulariser. `clip`: the largest 2-norm of a column of the gradient divided by n.

    A step costs 2 * B * n kernel entries.
    """

    _: KW_ONLY
    step_size: float = 0.5
    batch_size: int = 512
    num_steps: int = 100_000
    momentum: float = 0.9
    averaging: float | None = None
    num_features: int = 100
    clip: float = 0.1
    tol: float = 1e-2

    def __check_init__(self) -> None:
        for name in ("batch_size", "num_steps", "num_features"):
            check_count(getattr(self, name), name, 1)
        for name in ("step_size", "clip"):
            check_positive_number(getattr(self, name), name)
        check_momentum(self.momentum, self.averaging, None)
        check_tol(self.tol)

    def prepare(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[PreparedSGD, float]:
        averaging = min(1.0, 100 / self.num_steps) if self.averaging is None else self.averaging
        pool = operator.features(key, FEATURE_POOL)
        return PreparedSGD(replace(self, averaging=averaging), averaging, pool), 0.0


class PreparedSGD(Prepared):
    """Primal stochastic gradient descent with the features of its regulariser."""

    settings: SGD
    averaging: float
    pool: Any

    rules: ClassVar[Rules] = Rules(patience=math.inf)  # predictions improve long after the residual stalls

    def init(self, operator: Operator, b: Columns, start: Columns) -> SGDState:
        return SGDState(alpha=start, velocity=jnp.zeros_like(start), average=start)

    def step(self, operator: Operator, b: Columns, state: SGDState, key: RandomKey) -> tuple[SGDState, PerColumn]:
        alpha, velocity, average = state
        settings = self.settings
        n, B, rho, r = operator.n, settings.batch_size, settings.momentum, self.averaging
        index_key, feature_key = jax.random.split(key)

        point = alpha + rho * velocity
        index = jax.random.randint(index_key, (B,), 0, n, jnp.int32)
        fit = operator.noiseless.rows(index, point) - b[index]
        noise = operator.noise.diagonal(index, b.dtype)[:, None]
        usual = jnp.mean(jnp.asarray(operator.noise.variance, b.dtype))
        Phi = operator.feature_matrix(self.pool.resampled(feature_key, settings.num_features))
        gradient = operator.noiseless.columns(index, fit * (usual / noise)) / B + usual / n * (Phi @ (Phi.T @ point))
        norm = jnp.linalg.norm(gradient, axis=0)
        gradient = gradient * jnp.minimum(1.0, settings.clip / jnp.maximum(norm, jnp.finfo(b.dtype).tiny))
        velocity = rho * velocity - settings.step_size * gradient
        alpha = alpha + velocity
        average = r * alpha + (1 - r) * average

        residual = fit + noise * point[index]
        return SGDState(alpha, velocity, average), (n / B) * jnp.sum(residual**2, axis=0)

    def weights(self, state: SGDState) -> Columns:
        return state.average

    def passes_per_step(self, n: int) -> float:
        return 2 * self.settings.batch_size / n

    def max_steps(self, n: int) -> int:
        return self.settings.num_steps

    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        return f"step_size={self.settings.step_size:.3g} is too large here. Pass a tenth of it, or use solver='auto'."
