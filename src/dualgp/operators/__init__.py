"""A = K + noise * I, never formed unless it fits: the only place that decides how much of K exists at once.

Solvers see an `Operator`: some rows of A times a matrix, a square block, the diagonal. For data spread over many
devices there is `dualgp.operators.sharded`, which solvers see as any other.
"""

from dualgp.operators.base import Operator
from dualgp.operators.dense import DenseOperator
from dualgp.operators.kernel import KernelOperator

__all__ = ["DenseOperator", "KernelOperator", "Operator"]
