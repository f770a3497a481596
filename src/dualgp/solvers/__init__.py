"""(K + noise * I)^-1 b. Solvers know only the operator: never kernels, never data.

base.py           settings, prepared solvers, and what a Solution says
solve.py          `solve`: checks and scales the columns, and runs a solver
iterate.py        the one loop that every iterative solver runs in
stopping.py       deadlines, and the rules for divergence and stalling
residual.py       the residual of weights, estimated on fresh rows
progress.py       the progress of a run, and the progress bar
messages.py       the sentence about how a run ended
auto.py           solver="auto"
cholesky.py       exact, in float64: the oracle
block_descent.py  blocks of neighbours solved exactly: the default where n is large
neighbourhoods.py random partitions of the data into groups of neighbours
sdd.py            stochastic dual descent: the paper's Algorithm 1
cg.py             conjugate gradients; preconditioners.py: pivoted Cholesky
sgd.py            primal stochastic gradient descent, which SDD improves on
spectrum.py       the two numbers that step sizes depend on
"""

from dualgp.solvers.auto import Auto
from dualgp.solvers.base import DivergenceWarning, IterativeSolver, Prepared, Result, Solution, Solver
from dualgp.solvers.block_descent import BlockDescent
from dualgp.solvers.cg import CG
from dualgp.solvers.cholesky import Cholesky
from dualgp.solvers.preconditioners import PivotedCholesky
from dualgp.solvers.sdd import SDD
from dualgp.solvers.sgd import SGD
from dualgp.solvers.solve import as_solver, solve
from dualgp.solvers.stopping import Deadline

__all__ = [
    "CG",
    "SDD",
    "SGD",
    "Auto",
    "BlockDescent",
    "Cholesky",
    "Deadline",
    "DivergenceWarning",
    "IterativeSolver",
    "PivotedCholesky",
    "Prepared",
    "Result",
    "Solution",
    "Solver",
    "as_solver",
    "solve",
]
