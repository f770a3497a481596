"""(K + noise * I)^-1 b. Solvers know only the operator: never kernels, never data.

base.py           what a solver is, what a Solution says, and `solve`
loop.py           the one loop that every iterative solver runs in
part.py           budgets that are too short to converge on all rows
residual.py       how far an answer is from solving the system, checked on fresh rows
auto.py           solver="auto"
cholesky.py       exact, in float64: the oracle
block_descent.py  blocks of neighbours solved exactly: the default where n is large
neighbourhoods.py random partitions of the data into such blocks
sdd.py            stochastic dual descent: the paper's Algorithm 1
cg.py             conjugate gradients; preconditioners.py: pivoted Cholesky
sgd.py            primal stochastic gradient descent, which SDD improves on
descent.py        SDD's alternatives: gradient estimate x update x average
spectrum.py       the two numbers that step sizes depend on
"""

from dualgp.solvers.auto import Auto
from dualgp.solvers.base import IterativeSolver, Result, Solution, Solver, solve
from dualgp.solvers.block_descent import BlockDescent
from dualgp.solvers.cg import CG
from dualgp.solvers.cholesky import Cholesky
from dualgp.solvers.preconditioners import PivotedCholesky
from dualgp.solvers.sdd import SDD
from dualgp.solvers.sgd import SGD

__all__ = [
    "CG",
    "SDD",
    "SGD",
    "Auto",
    "BlockDescent",
    "Cholesky",
    "IterativeSolver",
    "PivotedCholesky",
    "Result",
    "Solution",
    "Solver",
    "solve",
]
