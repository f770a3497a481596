"""Translation of kernels: from scikit-learn, to scikit-learn, and to other units of y."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from types import ModuleType
from typing import Any

import equinox as eqx
import numpy as np

from dualgp.kernels import RBF, Constant, Kernel, Linear, Matern12, Matern32, Matern52, Periodic, RationalQuadratic
from dualgp.kernels.base import Product, Scale, Sum
from dualgp.kernels.columns import View
from dualgp.kernels.scaled import Scaled
from dualgp.kernels.tanimoto import Tanimoto

MATERN: dict[float, type[RBF | Matern12 | Matern32 | Matern52]] = {
    0.5: Matern12,
    1.5: Matern32,
    2.5: Matern52,
    np.inf: RBF,
}


def rescaled(kernel: Kernel, factor: float) -> Kernel:
    """factor * kernel, with the factor in the variance."""
    if isinstance(kernel, (Scaled, Tanimoto, Linear, Constant)):
        return eqx.tree_at(lambda k: k.variance, kernel, np.asarray(kernel.variance * factor))
    if isinstance(kernel, Scale):
        return Scale(kernel.scale * factor, kernel.kernel)
    if isinstance(kernel, View):
        return eqx.tree_at(lambda k: k.kernel, kernel, rescaled(kernel.kernel, factor))
    if isinstance(kernel, Sum):
        return rescaled(kernel.left, factor) + rescaled(kernel.right, factor)
    if isinstance(kernel, Product):
        return rescaled(kernel.left, factor) * kernel.right
    return factor * kernel


def translated(kernel: Any, learning: bool = True, d: int | None = None) -> tuple[Kernel, float | None]:
    """The kernel, translated if it is scikit-learn's, and the level of a WhiteKernel added to it.

    `d`: the number of inputs, if it is known. Some kernels have a counterpart for one input only.
    """
    if isinstance(kernel, Kernel):
        return kernel, None
    from sklearn.gaussian_process import kernels as theirs

    if not isinstance(kernel, theirs.Kernel):
        raise TypeError(f"kernel must be a dualgp or scikit-learn kernel, got {type(kernel).__name__}.")
    if learning and any(parameter.fixed for parameter in kernel.hyperparameters):
        raise ValueError("Bounds 'fixed' are not translated. Pass learn=False, or learn with dualgp.learn(fixed=...).")
    terms = _terms(kernel, theirs)
    is_white = [isinstance(term, theirs.WhiteKernel) for _, term in terms]
    white = [factor * float(term.noise_level) for (factor, term), is_it in zip(terms, is_white, strict=True) if is_it]
    rest = [
        rescaled(_as_ours(term, theirs, d), factor)
        for (factor, term), is_it in zip(terms, is_white, strict=True)
        if not is_it
    ]
    if not rest:
        raise ValueError(f"The kernel {kernel} is noise alone. Add it to an RBF or Matern.")
    return reduce(add, rest), sum(white) if white else None


def _terms(kernel: Any, theirs: ModuleType) -> list[tuple[float, Any]]:
    """The terms of nested sums, each with the constants that it is multiplied by."""
    if isinstance(kernel, theirs.Sum):
        return _terms(kernel.k1, theirs) + _terms(kernel.k2, theirs)
    if isinstance(kernel, theirs.Product):
        for constant, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
            if isinstance(constant, theirs.ConstantKernel):
                return [(float(constant.constant_value) * factor, term) for factor, term in _terms(other, theirs)]
    return [(1.0, kernel)]


def _as_ours(kernel: Any, theirs: ModuleType, d: int | None) -> Kernel:
    if isinstance(kernel, (theirs.Sum, theirs.Product)):
        terms = _terms(kernel, theirs)
        if terms != [(1.0, kernel)]:
            return reduce(add, (rescaled(_as_ours(term, theirs, d), factor) for factor, term in terms))
        return _as_ours(kernel.k1, theirs, d) * _as_ours(kernel.k2, theirs, d)
    if type(kernel) is theirs.RBF:
        return RBF(kernel.length_scale)
    if type(kernel) is theirs.Matern and kernel.nu in MATERN:
        return MATERN[kernel.nu](kernel.length_scale)
    if type(kernel) is theirs.RationalQuadratic:
        return RationalQuadratic(kernel.length_scale, power=kernel.alpha)
    if type(kernel) is theirs.ConstantKernel:
        return Constant(kernel.constant_value)
    if type(kernel) is theirs.DotProduct:
        return Linear() + Constant(kernel.sigma_0**2) if kernel.sigma_0 else Linear()
    if type(kernel) is theirs.ExpSineSquared and d in (None, 1):
        period = float(kernel.periodicity)
        return Periodic(kernel.length_scale * period / (2.0 * math.pi), period=period)
    raise ValueError(
        f"The kernel {kernel} has no counterpart in dualgp. There are RBF, Matern with nu = 0.5, 1.5, 2.5, "
        "RationalQuadratic, DotProduct, ConstantKernel and, for one input, ExpSineSquared; their sums and products, "
        "and a WhiteKernel added to all of it. Periodic and On of dualgp are for periods of some of many inputs."
    )


def as_sklearn(kernel: Kernel, noise: float | None = None) -> Any:
    """A kernel of ours as scikit-learn's, with a WhiteKernel for the noise if there is one."""
    from sklearn.gaussian_process import kernels as theirs

    same = _as_theirs(kernel, theirs)
    return same if noise is None else same + theirs.WhiteKernel(float(noise))


def _as_theirs(kernel: Kernel, theirs: ModuleType) -> Any:
    if isinstance(kernel, Sum):
        return _as_theirs(kernel.left, theirs) + _as_theirs(kernel.right, theirs)
    if isinstance(kernel, Product):
        return _as_theirs(kernel.left, theirs) * _as_theirs(kernel.right, theirs)
    if isinstance(kernel, Scale):
        return theirs.ConstantKernel(float(kernel.scale)) * _as_theirs(kernel.kernel, theirs)
    if isinstance(kernel, Constant):
        return theirs.ConstantKernel(float(kernel.variance))
    lengthscale = getattr(kernel, "lengthscales", getattr(kernel, "lengthscale", np.ones(1)))
    for nu, kind in MATERN.items():
        if type(kernel) is kind:
            scales = lengthscale.tolist()
            same = theirs.RBF(scales) if kind is RBF else theirs.Matern(scales, nu=nu)
            return theirs.ConstantKernel(float(kernel.variance)) * same
    if lengthscale.ndim == 0 and np.isfinite(lengthscale):
        found = _with_one_lengthscale(kernel, float(lengthscale), theirs)
        if found is not None:
            return theirs.ConstantKernel(found[0]) * found[1]
    raise ValueError(
        f"{kernel!r} has no counterpart in scikit-learn. There are RBF and Matern12, 32 and 52; with one lengthscale "
        "RationalQuadratic, Linear with centre 0 and Periodic with one period, of one input; Constant; sums, products "
        "and multiples."
    )


def _with_one_lengthscale(kernel: Kernel, lengthscale: float, theirs: ModuleType) -> tuple[float, Any] | None:
    """A factor and a kernel of scikit-learn that has one lengthscale only; None if there is no such kernel."""
    if type(kernel) is RationalQuadratic:
        return float(kernel.variance), theirs.RationalQuadratic(lengthscale, float(kernel.power))
    if type(kernel) is Linear and kernel.centre == 0.0:
        return float(kernel.variance) / lengthscale**2, theirs.DotProduct(0.0, "fixed")
    if type(kernel) is Periodic and kernel.period.ndim == 0:
        period = float(kernel.period)
        return float(kernel.variance), theirs.ExpSineSquared(2.0 * math.pi * lengthscale / period, period)
    return None
