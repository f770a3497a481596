"""The exact solution by a dense Cholesky factorisation in float64: the oracle of every other solver."""

import time

import jax
import numpy as np
from jaxtyping import Float

from dualgp._checks import check_memory
from dualgp._types import Columns
from dualgp.operators import Operator
from dualgp.operators.policy import FACTOR_SHARE, machine_memory
from dualgp.solvers.base import Result, Run, Solution, Solver, Trace
from dualgp.solvers.residual import check_residual

MESSAGE = "Solved exactly, by a Cholesky factorisation in float64."
ROUNDED = " But rounding leaves a relative residual of {:.1g}: raise the noise, or do not trust the weights."
ROUNDING = 1e-4  # the message mentions a larger relative residual


class Cholesky(Solver):
    """weights = L^-T L^-1 b with A = L L^T, in float64: n^3 / 3 operations and 8 n^2 bytes, whatever the tolerance.

    `memory`: bytes that the factor may take; by default 60 % of the machine's memory.
    """

    memory: int | None = None

    def __check_init__(self) -> None:
        check_memory(self.memory)

    def is_direct(self, n: int) -> bool:
        return True

    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        from scipy.linalg import cho_solve

        factor = factorise(operator, FACTOR_SHARE * machine_memory() if self.memory is None else self.memory)
        weights = cho_solve((factor, True), np.asarray(operator.layout.collect(b), np.float64), check_finite=False)
        key = jax.random.key(0) if run.key is None else run.key
        residual = check_residual(operator, b, operator.layout.place(weights, operator.dtype), key)
        is_rounded = operator.dtype == np.float64 and residual.estimate.max() > ROUNDING  # float32 rounds anyway
        seconds = time.perf_counter() - run.began
        return Solution(
            weights=weights,
            result=Result.CONVERGED,
            message=MESSAGE + (ROUNDED.format(residual.estimate.max()) if is_rounded else ""),
            residual=residual.estimate,
            residual_upper=residual.upper,
            residuals=residual.rows,
            steps=1,
            passes=1.0,
            seconds=seconds,
            solver=self,
            trace=Trace(np.array([1]), np.array([1.0]), np.array([seconds]), residual.estimate[None]),
            factor=factor,
        )


def factorise(operator: Operator, memory: float) -> Float[np.ndarray, "n n"]:
    """The lower Cholesky factor of A, computed in place."""
    from scipy.linalg import LinAlgError, cholesky

    needed = 8 * operator.n**2
    if needed > memory:
        raise MemoryError(
            f"An exact solution of n = {operator.n:,} needs {needed / 2**30:.1f} GiB for the matrix, and "
            f"{memory / 2**30:.1f} GiB are allowed. Pass solver='auto' to solve iteratively, or raise "
            "Cholesky(memory=bytes)."
        )
    matrix = operator.dense()
    try:
        # LAPACK stores columns: the transpose of a symmetric matrix stored by rows needs no copy.
        return cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        raise ValueError(
            f"K + noise * I is not positive definite in float64 (n = {operator.n:,}, noise = "
            f"{operator.noise.smallest:.2g}): the noise is below the rounding error of K. "
            "Raise it, e.g. to 1e-8 times the kernel's variance or more."
        ) from None
