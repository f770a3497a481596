"""Stochastic dual descent (Algorithm 1 of "Stochastic Gradient Descent for Gaussian Processes Done Right").

Minimises 1/2 ||alpha||^2_{K + noise I} - alpha . b, whose gradient (K + noise I) alpha - b is estimated on a batch of
random coordinates. The noise of that estimate vanishes at the solution, so a constant step size converges.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._checks import check_count, check_number
from dualgp._types import Columns, RandomKey, Scalar
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, PerColumn, Prepared, check_momentum, check_tol
from dualgp.solvers.spectrum import Spectrum, estimate_spectrum

SAFETY = 0.9  # times the largest stable step size: what "auto" uses
SMALLEST_BATCH, LARGEST_BATCH = 64, 512


class SDDState(NamedTuple):
    """Iterate, velocity, and geometric average."""

    alpha: Float[Array, "n s"]
    velocity: Float[Array, "n s"]
    average: Float[Array, "n s"]


class SDD(IterativeSolver):
    """Stochastic dual descent, by default with automatic step and batch size.

    **Arguments:**

    - `step_size`: beta * n in the paper's notation (which quotes 50 for means); "auto" takes 0.9 of the largest stable
      one, see `stable_step_size`.
    - `batch_size`: B, rows per step; "auto" takes the smallest one from which larger batches hardly help.
    - `num_steps`: T. `momentum`: rho. `averaging`: r, by default 100 / T (at least 1 / 100 if it may stop early).
    - `tol`: stop once the relative residual of every column is below this; 0 runs all T steps, as in the paper.

    A step costs B * n kernel entries and O(n s) additions.
    """

    _: KW_ONLY
    step_size: float | Scalar | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    num_steps: int = 100_000
    momentum: float = 0.9
    averaging: float | Literal["auto"] = "auto"
    tol: float = 1e-2

    def __check_init__(self) -> None:
        check_count(self.num_steps, "num_steps", 1)
        if self.batch_size != "auto":
            check_count(self.batch_size, "batch_size", 1)
        if not isinstance(self.step_size, str) and not (
            hasattr(self.step_size, "dtype") and not np.ndim(self.step_size)
        ):
            check_number(self.step_size, "step_size")
        if not (self.step_size == "auto" if isinstance(self.step_size, str) else self.step_size > 0):
            raise ValueError(f"step_size must be positive or 'auto', got {self.step_size!r}.")
        check_momentum(self.momentum, self.averaging, "auto")
        check_tol(self.tol)

    def prepare(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[PreparedSDD, float]:
        batch_size, step_size, passes = self.batch_size, self.step_size, 0.0
        if isinstance(batch_size, str) or isinstance(step_size, str):
            spectrum = estimate_spectrum(operator, key)
            passes = spectrum.passes
            if isinstance(batch_size, str):
                batch_size = choose_batch_size(spectrum, self.momentum)
            if isinstance(step_size, str):
                step_size = SAFETY * stable_step_size(spectrum, batch_size, self.momentum)
        # The paper's 100 / T is for a run of T steps. A run that may stop early must forget its past sooner.
        suitable = max(min(1.0, 100 / self.num_steps), 0.01 if self.tol > 0 else 0.0)
        averaging = suitable if isinstance(self.averaging, str) else self.averaging
        step_size = np.float64(step_size)  # an array for JAX: another step size needs no compilation
        settings = replace(self, step_size=step_size, batch_size=batch_size, averaging=averaging)
        return PreparedSDD(
            settings, step_size, batch_size, averaging, may_slow_down=isinstance(self.step_size, str)
        ), passes


class PreparedSDD(Prepared):
    """Stochastic dual descent with a value for every setting."""

    settings: SDD
    step_size: float | Scalar
    batch_size: int
    averaging: float
    may_slow_down: bool

    def init(self, operator: Operator, b: Columns, start: Columns) -> SDDState:
        alpha = jnp.asarray(start)
        return SDDState(alpha=alpha, velocity=jnp.zeros_like(alpha), average=alpha)

    def step(self, operator: Operator, b: Columns, state: SDDState, key: RandomKey) -> tuple[SDDState, PerColumn]:
        alpha, velocity, average = state
        n, B, rho, r = operator.n, self.batch_size, self.settings.momentum, self.averaging
        step = jnp.asarray(self.step_size, b.dtype) / B  # beta * n / B

        index = jax.random.randint(key, (B,), 0, n, jnp.int32)  # independent, with replacement
        gradient = operator.residual(index, alpha + rho * velocity, b)  # at the rows of the batch
        velocity = (rho * velocity).at[index].add(-step * gradient)  # add: an index may occur twice
        alpha = alpha + velocity
        average = r * alpha + (1 - r) * average

        return SDDState(alpha, velocity, average), (n / B) * jnp.sum(gradient**2, axis=0)

    def weights(self, state: SDDState) -> Columns:
        return state.average

    def passes_per_step(self, n: int) -> float:
        return self.batch_size / n

    def max_steps(self, n: int) -> int:
        return self.settings.num_steps

    def slower(self) -> PreparedSDD | None:
        half = self.step_size / 2
        settings = replace(self.settings, step_size=half)
        return replace(self, settings=settings, step_size=half) if self.may_slow_down else None

    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        limit = stable_step_size(estimate_spectrum(operator, key), self.batch_size, self.settings.momentum)
        if self.step_size < limit:
            return (
                f"step_size={float(self.step_size):.3g} is below the predicted limit of {limit:.3g}, so rounding is "
                "the likelier cause. Pass float64 inputs or more noise."
            )
        return (
            f"step_size={float(self.step_size):.3g} is too large here; the largest stable one is about {limit:.3g}. "
            f"Pass step_size='auto' or step_size={SAFETY * limit:.2g}."
        )


def stable_step_size(spectrum: Spectrum, batch_size: int, momentum: float) -> float:
    """The largest stable beta * n: 1 / ((1 + 2 rho) / (2 + 2 rho) * lambda_1 / n + max_i A_ii / (2 B (1 - rho))).

    The first term is the limit of Nesterov's method without noise, the second the limit by the noise of batches.
    lambda_1 is the largest eigenvalue of A = K + noise * I.
    """
    curvature = (1 + 2 * momentum) / (2 + 2 * momentum) * spectrum.largest / spectrum.n
    return 1.0 / (curvature + spectrum.diagonal / (2 * batch_size * (1 - momentum)))


def critical_batch_size(spectrum: Spectrum, momentum: float) -> float:
    """The batch size at which both terms of `stable_step_size` are equal: larger ones gain at most a factor of 2."""
    curvature = (1 + 2 * momentum) / (2 + 2 * momentum) * spectrum.largest / spectrum.n
    return spectrum.diagonal / (2 * (1 - momentum) * curvature)


def choose_batch_size(spectrum: Spectrum, momentum: float) -> int:
    """The smallest power of two that is at least the critical batch size, within limits."""
    power = 1 << int(np.ceil(np.log2(max(critical_batch_size(spectrum, momentum), 1.0))))
    return min(spectrum.n, max(SMALLEST_BATCH, min(LARGEST_BATCH, power)))
