"""solver="auto": exact where that is cheap, otherwise the method that a probe of the matrix favours."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, replace
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._checks import check_key
from dualgp._random import generator, subkey
from dualgp._types import Columns, Indices, RandomKey
from dualgp.operators import Operator
from dualgp.operators.policy import DEFAULT_TOL, PROBE_FROM, SOLVE_EXACTLY_UP_TO
from dualgp.solvers.base import Run, Solution, Solver, check_tol
from dualgp.solvers.block_descent import BlockDescent
from dualgp.solvers.cg import CG
from dualgp.solvers.cholesky import Cholesky
from dualgp.solvers.preconditioners import PivotedCholesky, Preconditioner
from dualgp.solvers.spectrum import PROBE_POINTS, largest_eigenvalue

PROBE_RANK = 200
PROBE_SECONDS, PROBE_SECONDS_PER_ROW = 2.0, 2.5e-5  # compilation, and columns of K: 2 s for 25,000 rows, 9 for 300,000
PROBE_SHARE = 0.2  # the largest fraction of the remaining time for the probe
# Block descent takes 2 to 6 passes to a residual of 1e-2. Conjugate gradients are chosen only if their forecast is
# smaller, and if rounding, about eps * tr(K) / noise, does not slow them down.
CG_BELOW_ITERATIONS = 5.0
CG_BELOW_ROUNDING = 0.1


class Auto(Solver):
    """Cholesky up to 4,096 points, block descent up to 20,000. Beyond, a probe decides: conjugate gradients if few
    columns approximate K so well that they are faster, else block descent.

    `tol`: the relative residual to reach. Without it, block descent stops in `condition` when another pass no longer
    improves predictions of rows kept aside, and in `solve` at 1e-2.
    """

    _: KW_ONLY
    tol: float | None = None

    def __check_init__(self) -> None:
        if self.tol is not None:
            check_tol(self.tol)

    @property
    def takes_few_passes(self) -> bool:
        return BlockDescent(tol=self._tol).takes_few_passes

    def is_direct(self, n: int) -> bool:
        return n <= SOLVE_EXACTLY_UP_TO

    def stops_by_validation(self, n: int) -> bool:
        return self.tol is None and n > SOLVE_EXACTLY_UP_TO

    @property
    def _tol(self) -> float:
        return DEFAULT_TOL if self.tol is None else self.tol

    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        solver: Solver = BlockDescent(tol=self._tol)
        if self.is_direct(operator.n):
            return Cholesky().run(operator, b, run)
        if operator.n <= PROBE_FROM or not is_probe_worthwhile(operator.n, operator.layout.agree(run.deadline.left)):
            return solver.run(operator, b, run)
        probe = examine(operator, self._tol, subkey(check_key(run.key, type(self).__name__), "probe"))
        reason = f"{PROBE_RANK} columns of K leave about {probe.iterations:.0f} iterations to conjugate gradients"
        if probe.rounding > CG_BELOW_ROUNDING:
            reason = f"conjugate gradients would suffer from rounding in {operator.dtype}"
        elif probe.iterations <= CG_BELOW_ITERATIONS:
            solver = CG(preconditioner=probe.preconditioner, tol=self._tol)
        passes_left = None if run.max_passes is None else run.max_passes - probe.passes
        solution = solver.run(operator, b, replace(run, max_passes=passes_left))
        return replace(
            solution, message=f"{solution.message} (Chosen because {reason}.)", passes=solution.passes + probe.passes
        )


class Probe(NamedTuple):
    """A preconditioner, the forecast number of iterations of conjugate gradients with it, their rounding error relative
    to the right-hand side, and the passes spent."""

    preconditioner: Preconditioner
    iterations: float
    rounding: float
    passes: float


def is_probe_worthwhile(n: int, seconds_left: float) -> bool:
    """Whether the probe takes a small fraction of the remaining time."""
    return PROBE_SECONDS + PROBE_SECONDS_PER_ROW * n <= PROBE_SHARE * seconds_left


def examine(operator: Operator, tol: float, key: RandomKey) -> Probe:
    """Forecast conjugate gradients: half of sqrt(condition number of P^-1 A) * ln(2 / tol) iterations.

    P = F F^T + noise I leaves K - F F^T, whose largest eigenvalue is estimated from an m x m block of a subsample: its
    off-diagonal contribution grows in proportion to the number of points, its diagonal does not.
    """
    preconditioner = PivotedCholesky(rank=PROBE_RANK, random=True)(operator, subkey(key, "pivots"))
    m = min(PROBE_POINTS, operator.n)
    index = generator(subkey(key, "rows")).choice(operator.n, m, replace=False)
    block = _unexplained(operator, preconditioner, index)
    diagonal = float(jnp.mean(jnp.diagonal(block)))
    beyond = max(0.0, float(largest_eigenvalue(block, subkey(key, "power iteration"))) - diagonal)
    condition = 1.0 + (diagonal + beyond * operator.n / m) / operator.noise.smallest
    iterations = 0.5 * math.sqrt(condition) * math.log(2.0 / max(tol, 1e-7))
    rounding = float(jnp.finfo(operator.dtype).eps * jnp.sum(operator.noiseless.diagonal()) / operator.noise.smallest)
    return Probe(preconditioner, iterations, rounding, PROBE_RANK / operator.n + (m / operator.n) ** 2)


@eqx.filter_jit
def _unexplained(operator: Operator, preconditioner: Preconditioner, index: Indices) -> Float[Array, "m m"]:
    F = jnp.asarray(preconditioner.F)[index]
    return operator.noiseless.block(index) - F @ F.T
