"""solver="auto": nothing to tune."""

from dualgp._types import Columns
from dualgp.operators import Operator
from dualgp.solvers.base import Run, Solution, Solver
from dualgp.solvers.block_descent import BlockDescent
from dualgp.solvers.cholesky import Cholesky

EXACT_UP_TO = 4096  # points


class Auto(Solver):
    """Exact up to 4,096 points; block descent, which has nothing to tune, beyond."""

    tol: float = 1e-2

    def run(self, operator: Operator, b: Columns, run: Run) -> Solution:
        solver = Cholesky() if operator.n <= EXACT_UP_TO else BlockDescent(tol=self.tol)
        return solver.run(operator, b, run)
