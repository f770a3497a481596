"""Kernels in other words: scikit-learn's as ours, and ours in other units of y."""

from __future__ import annotations

from functools import reduce
from operator import add
from types import ModuleType
from typing import Any

import equinox as eqx
import numpy as np

from dualgp.kernels import RBF, Kernel, Matern12, Matern32, Matern52, On, Tanimoto
from dualgp.kernels.base import Product, Scale, Sum
from dualgp.kernels.stationary import Stationary

MATERN: dict[float, type[RBF | Matern12 | Matern32 | Matern52]] = {
    0.5: Matern12,
    1.5: Matern32,
    2.5: Matern52,
    np.inf: RBF,
}


def rescaled(kernel: Kernel, factor: float) -> Kernel:
    """factor * kernel, with the factor where one would look for it: in the variance."""
    if isinstance(kernel, (Stationary, Tanimoto)):
        return eqx.tree_at(lambda k: k.variance, kernel, np.asarray(kernel.variance * factor))
    if isinstance(kernel, Scale):
        return Scale(kernel.scale * factor, kernel.kernel)
    if isinstance(kernel, On):
        return On(rescaled(kernel.kernel, factor), kernel.start, kernel.stop)
    if isinstance(kernel, Sum):
        return rescaled(kernel.left, factor) + rescaled(kernel.right, factor)
    if isinstance(kernel, Product):
        return rescaled(kernel.left, factor) * kernel.right
    return factor * kernel


def translated(kernel: Any, learning: bool = True) -> tuple[Kernel, float | None]:
    """A kernel of ours as it is, one of scikit-learn's translated; and the level of a WhiteKernel added to it."""
    if isinstance(kernel, Kernel):
        return kernel, None
    from sklearn.gaussian_process import kernels as theirs

    if not isinstance(kernel, theirs.Kernel):
        raise TypeError(f"kernel must be a dualgp or scikit-learn kernel, got {type(kernel).__name__}.")
    if learning and any(parameter.fixed for parameter in kernel.hyperparameters):
        raise ValueError("Bounds 'fixed' are not translated. Pass learn=False, or learn with dualgp.learn(fixed=...).")
    terms = _terms(kernel, theirs)
    white = [float(term.noise_level) for term in terms if isinstance(term, theirs.WhiteKernel)]
    rest = [_as_ours(term, theirs) for term in terms if not isinstance(term, theirs.WhiteKernel)]
    if not rest:
        raise ValueError(f"The kernel {kernel} is noise alone. Add it to an RBF or Matern.")
    return reduce(add, rest), sum(white) if white else None


def _terms(kernel: Any, theirs: ModuleType) -> list[Any]:
    """The terms of nested sums."""
    return [kernel] if not isinstance(kernel, theirs.Sum) else _terms(kernel.k1, theirs) + _terms(kernel.k2, theirs)


def _as_ours(kernel: Any, theirs: ModuleType) -> Kernel:
    if isinstance(kernel, theirs.Sum):
        return _as_ours(kernel.k1, theirs) + _as_ours(kernel.k2, theirs)
    if isinstance(kernel, theirs.Product):
        for constant, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
            if isinstance(constant, theirs.ConstantKernel):
                return rescaled(_as_ours(other, theirs), float(constant.constant_value))
        return _as_ours(kernel.k1, theirs) * _as_ours(kernel.k2, theirs)
    if type(kernel) is theirs.RBF:
        return RBF(kernel.length_scale)
    if type(kernel) is theirs.Matern and kernel.nu in MATERN:
        return MATERN[kernel.nu](kernel.length_scale)
    raise ValueError(
        f"The kernel {kernel} has no counterpart in dualgp. There are RBF and Matern with nu = 0.5, 1.5, 2.5; sums, "
        "products and constant factors of them, and a WhiteKernel added to all of it."
    )
