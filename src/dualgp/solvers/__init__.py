"""(K + noise * I)^-1 b. Solvers know only the operator: never kernels, never data.

    base.py       what a solver is, what a Solution says, and `solve`
    loop.py       the one loop that every iterative solver runs in
    residual.py   how far an answer is from solving the system, checked on fresh rows
    cholesky.py   exact, in float64: the oracle
    sdd.py        stochastic dual descent: the paper's Algorithm 1
    block_descent.py  random blocks solved exactly: the default where n is large
    auto.py       solver="auto"
"""

from dualgp.solvers.auto import Auto
from dualgp.solvers.base import IterativeSolver, Result, Solution, Solver, solve
from dualgp.solvers.block_descent import BlockDescent
from dualgp.solvers.cholesky import Cholesky
from dualgp.solvers.sdd import SDD

__all__ = ["SDD", "Auto", "BlockDescent", "Cholesky", "IterativeSolver", "Result", "Solution", "Solver", "solve"]
