"""Gaussian processes on all of the data.

In the order in which data flows: kernel -> operator -> solver -> posterior -> application. Names are imported when they
are first used, so that the command line can answer `--help` without waiting for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualgp import data, distributed, learning, metrics, plots
    from dualgp.data.fingerprints import MorganFingerprint
    from dualgp.estimator import GPRegressor
    from dualgp.gp import GaussianProcess
    from dualgp.io import load, save
    from dualgp.kernels import (
        RBF,
        Constant,
        Kernel,
        Laplace,
        Linear,
        Matern12,
        Matern32,
        Matern52,
        On,
        OnSphere,
        Periodic,
        RationalQuadratic,
        Tanimoto,
    )
    from dualgp.learning import learn
    from dualgp.maxima import Search, maximise
    from dualgp.operators import KernelOperator
    from dualgp.posterior import Posterior
    from dualgp.solvers import CG, SDD, SGD, Auto, BlockDescent, Cholesky, PivotedCholesky, Result, Solution, solve
    from dualgp.thompson import ThompsonSampler

__version__ = "0.1.0"

__all__ = [
    "CG",
    "RBF",
    "SDD",
    "SGD",
    "Auto",
    "BlockDescent",
    "Cholesky",
    "Constant",
    "GPRegressor",
    "GaussianProcess",
    "Kernel",
    "KernelOperator",
    "Laplace",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "MorganFingerprint",
    "On",
    "OnSphere",
    "Periodic",
    "PivotedCholesky",
    "Posterior",
    "RationalQuadratic",
    "Result",
    "Search",
    "Solution",
    "Tanimoto",
    "ThompsonSampler",
    "data",
    "distributed",
    "learn",
    "learning",
    "load",
    "maximise",
    "metrics",
    "plots",
    "save",
    "solve",
]

_HOME = {
    "kernels": (
        "Kernel",
        "RBF",
        "Matern12",
        "Matern32",
        "Matern52",
        "RationalQuadratic",
        "Laplace",
        "Periodic",
        "Linear",
        "Constant",
        "Tanimoto",
        "On",
        "OnSphere",
    ),
    "operators": ("KernelOperator",),
    "solvers": (
        "Auto",
        "BlockDescent",
        "CG",
        "Cholesky",
        "PivotedCholesky",
        "Result",
        "SDD",
        "SGD",
        "Solution",
        "solve",
    ),
    "posterior": ("Posterior",),
    "gp": ("GaussianProcess",),
    "learning": ("learn",),
    "maxima": ("Search", "maximise"),
    "thompson": ("ThompsonSampler",),
    "io": ("load", "save"),
    "estimator": ("GPRegressor",),
    "data.fingerprints": ("MorganFingerprint",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(f"dualgp.{_MODULE_OF[name]}"), name)
    elif name in __all__:
        value = import_module(f"dualgp.{name}")
    else:
        raise AttributeError(f"module 'dualgp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
