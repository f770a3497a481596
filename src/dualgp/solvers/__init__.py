"""(K + noise * I)^-1 b. Solvers know only the operator: never kernels, never data.

    base.py       what a solver is, what a Solution says, and `solve`
    loop.py       the one loop that every iterative solver runs in
    residual.py   how far an answer is from solving the system, checked on fresh rows
    cholesky.py   exact, in float64: the oracle
    sdd.py        stochastic dual descent: the paper's Algorithm 1
"""

from dualgp.solvers.auto import Auto
from dualgp.solvers.base import IterativeSolver, Result, Solution, Solver, solve
from dualgp.solvers.cholesky import Cholesky
from dualgp.solvers.sdd import SDD

__all__ = ["SDD", "Auto", "Cholesky", "IterativeSolver", "Result", "Solution", "Solver", "solve"]
