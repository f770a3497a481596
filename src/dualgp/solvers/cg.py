"""Preconditioned conjugate gradients for all right-hand sides at once.

Every column has its own step lengths, and a converged column takes no steps. Scalars are float64 in any precision. The
residual is computed anew every ten iterations: in float32 the recursive one drifts away from the true one.
Steps depend on the right-hand sides: unlike with SDD and BlockDescent, an unfinished solve may be over-confident.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from dualgp._checks import check_count
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, PerColumn, Prepared, check_tol
from dualgp.solvers.preconditioners import PivotedCholesky, Preconditioner
from dualgp.solvers.stopping import Rules

REFRESH_EVERY = 10


class CGState(NamedTuple):
    """Iterate, residual, direction and r . P^-1 r for each column."""

    x: Columns
    r: Columns
    p: Columns
    rho: PerColumn
    iteration: Int[Array, ""]


class CG(IterativeSolver):
    """Preconditioned conjugate gradients: an iteration is a pass over K (1.1 with the recomputed residuals).

    **Arguments:**

    - `preconditioner`: `PivotedCholesky(rank=100)` as in the paper, `PivotedCholesky(rank=500, random=True)`, or None.
    - `tol`: relative residual of every column. `max_iterations`: the budget.
    """

    _: KW_ONLY
    preconditioner: PivotedCholesky | Preconditioner | None = PivotedCholesky()
    tol: float = 1e-2
    max_iterations: int = 1000

    def __check_init__(self) -> None:
        check_count(self.max_iterations, "max_iterations", 1)
        check_tol(self.tol)
        if not isinstance(self.preconditioner, PivotedCholesky | Preconditioner | None):
            raise TypeError(f"preconditioner must be PivotedCholesky(), or None, got {self.preconditioner!r}.")

    def prepare(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[PreparedCG, float]:
        preconditioner, passes = self.preconditioner, 0.0
        if isinstance(preconditioner, Preconditioner) and preconditioner.noise.shape != (operator.layout.height,):
            preconditioner = PivotedCholesky(rank=preconditioner.F.shape[1])  # that one was made for other rows
        if isinstance(preconditioner, PivotedCholesky):
            passes = min(preconditioner.rank, operator.n) / operator.n
            preconditioner = preconditioner(operator, key)
        return PreparedCG(replace(self, preconditioner=preconditioner)), passes


class PreparedCG(Prepared):
    """Conjugate gradients with a preconditioner that has been computed."""

    settings: CG

    # The residual of conjugate gradients is not monotone and may stay high for long; only the error in the norm of A
    # falls in every step. A step with a recomputed residual takes two passes.
    rules: ClassVar[Rules] = Rules(
        growth_limit=np.inf,
        patience=200.0,
        longest_step=2.0,
        if_unfinished="Give it more time (refine): until then its error bars may be too narrow.",
    )
    start_passes: ClassVar[float] = 1.0

    @eqx.filter_jit
    def init(self, operator: Operator, b: Columns, start: Columns) -> CGState:
        r = jax.lax.cond(jnp.any(start != 0), lambda: b - operator @ start, lambda: b)  # no pass if the start is zero
        z = self._precondition(r)
        return CGState(start, r, z, _dot(r, z), jnp.int32(0))

    def step(self, operator: Operator, b: Columns, state: CGState, key: RandomKey) -> tuple[CGState, PerColumn]:
        x, r, p, rho, iteration = state
        q = operator @ p
        length = rho / _nonzero(_dot(p, q))
        x = x + _times(length, p)
        refresh = (iteration + 1) % REFRESH_EVERY == 0
        r = jax.lax.cond(refresh, lambda: b - operator @ x, lambda: r - _times(length, q))
        z = self._precondition(r)

        squared = _dot(r, r)
        done = squared <= (0.1 * self.tol) ** 2 * _dot(b, b)  # well below the tolerance: the column is finished
        rho_new = jnp.where(done, 0.0, _dot(r, z))
        # A recomputed residual far above the recursive one is due to rounding: restart the directions.
        turn = jnp.where(rho_new > 10.0 * rho, 0.0, rho_new / _nonzero(rho))
        p = jnp.where(done, 0.0, z + _times(turn, p))
        return CGState(x, r, p, rho_new, iteration + 1), squared.astype(b.dtype)

    def weights(self, state: CGState) -> Columns:
        return state.x

    def residuals(self, state: CGState) -> Columns | None:
        return state.r if int(state.iteration) % REFRESH_EVERY == 0 else None

    def passes_per_step(self, n: int) -> float:
        return 1.0 + 1.0 / REFRESH_EVERY

    def max_steps(self, n: int) -> int:
        return self.settings.max_iterations

    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        return (
            f"a noise of {operator.noise.smallest:.2g} leaves a system too ill-conditioned for {operator.dtype}. "
            "Raise the noise, pass float64 inputs with dtype=float64, or use solver='auto'."
        )

    def _precondition(self, r: Columns) -> Columns:
        preconditioner = self.settings.preconditioner
        return preconditioner(r) if isinstance(preconditioner, Preconditioner) else r


def _dot(a: Columns, b: Columns) -> PerColumn:
    return jnp.sum(a.astype(jnp.float64) * b.astype(jnp.float64), axis=0)


def _times(scalars: PerColumn, columns: Columns) -> Columns:
    return scalars.astype(columns.dtype) * columns


def _nonzero(scalars: PerColumn) -> PerColumn:
    """A finished column has rho = 0 and p = 0: its steps are 0 / 1 instead of 0 / 0."""
    return jnp.where(scalars == 0, 1.0, scalars)
