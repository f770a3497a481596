"""A = K + diag(noise), never formed unless it fits: the only place that decides how much of K exists at once.

base.py    what a solver may ask: `Operator`
kernel.py  `KernelOperator`: a kernel at data, in one place or sharded over devices
dense.py   `DenseOperator`: a matrix in memory
layout.py  rows on one device or sharded; tiles.py: products tile by tile; cross.py: k(points, x) @ weights
noise.py   the noise of observations
nearest.py the nearest rows of a point, and predictions from them alone
policy.py  every decision that depends on size or machine, once
"""

from dualgp.operators.base import Operator
from dualgp.operators.dense import DenseOperator
from dualgp.operators.kernel import KernelOperator

__all__ = ["DenseOperator", "KernelOperator", "Operator"]
