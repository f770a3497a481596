"""Gaussian processes on all of the data.

In the order in which data flows: kernel -> operator -> solver -> posterior.
"""

from dualgp import data, learning, metrics
from dualgp.gp import GaussianProcess
from dualgp.kernels import RBF, Kernel, Matern12, Matern32, Matern52
from dualgp.learning import learn
from dualgp.operators import KernelOperator
from dualgp.posterior import Posterior
from dualgp.solvers import CG, SDD, SGD, Auto, BlockDescent, Cholesky, PivotedCholesky, Result, Solution, solve

__version__ = "0.1.0"

__all__ = [
    "CG",
    "RBF",
    "SDD",
    "SGD",
    "Auto",
    "BlockDescent",
    "Cholesky",
    "GaussianProcess",
    "Kernel",
    "KernelOperator",
    "Matern12",
    "Matern32",
    "Matern52",
    "PivotedCholesky",
    "Posterior",
    "Result",
    "Solution",
    "data",
    "learn",
    "learning",
    "metrics",
    "solve",
]
