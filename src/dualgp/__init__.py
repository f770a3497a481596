"""Gaussian processes on all of the data.

In the order in which data flows: kernel -> operator -> solver -> posterior -> application. Names are imported when they
are first used, so that the command line can answer `--help` without waiting for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualgp import distributed as distributed
    from dualgp import learning as learning
    from dualgp import metrics as metrics
    from dualgp import plots as plots
    from dualgp.decisions.maxima import Search as Search
    from dualgp.decisions.maxima import maximise as maximise
    from dualgp.decisions.thompson import ThompsonSampler as ThompsonSampler
    from dualgp.gp import GaussianProcess as GaussianProcess
    from dualgp.io import load as load
    from dualgp.io import save as save
    from dualgp.kernels import RBF as RBF
    from dualgp.kernels import Constant as Constant
    from dualgp.kernels import Kernel as Kernel
    from dualgp.kernels import Laplace as Laplace
    from dualgp.kernels import Linear as Linear
    from dualgp.kernels import Matern12 as Matern12
    from dualgp.kernels import Matern32 as Matern32
    from dualgp.kernels import Matern52 as Matern52
    from dualgp.kernels import On as On
    from dualgp.kernels import OnSphere as OnSphere
    from dualgp.kernels import Periodic as Periodic
    from dualgp.kernels import RationalQuadratic as RationalQuadratic
    from dualgp.kernels import RoughSmooth as RoughSmooth
    from dualgp.kernels import Tanimoto as Tanimoto
    from dualgp.learning import learn as learn
    from dualgp.operators import KernelOperator as KernelOperator
    from dualgp.posterior import Posterior as Posterior
    from dualgp.sklearn.estimator import GPRegressor as GPRegressor
    from dualgp.sklearn.fingerprints import MorganFingerprint as MorganFingerprint
    from dualgp.sklearn.fingerprints import fingerprints as fingerprints
    from dualgp.solvers import CG as CG
    from dualgp.solvers import SDD as SDD
    from dualgp.solvers import SGD as SGD
    from dualgp.solvers import Auto as Auto
    from dualgp.solvers import BlockDescent as BlockDescent
    from dualgp.solvers import Cholesky as Cholesky
    from dualgp.solvers import PivotedCholesky as PivotedCholesky
    from dualgp.solvers import Result as Result
    from dualgp.solvers import Solution as Solution
    from dualgp.solvers import solve as solve

__version__ = "0.1.0"

_HOME = {
    "kernels": (
        "Kernel",
        "RBF",
        "Matern12",
        "Matern32",
        "Matern52",
        "RationalQuadratic",
        "RoughSmooth",
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
    "decisions.maxima": ("Search", "maximise"),
    "decisions.thompson": ("ThompsonSampler",),
    "io": ("load", "save"),
    "sklearn.estimator": ("GPRegressor",),
    "sklearn.fingerprints": ("MorganFingerprint", "fingerprints"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_MODULES = ("distributed", "learning", "metrics", "plots")
_PACKAGES = ("botorch", "decisions", "kernels", "operators", "posterior", "solvers")

__all__ = sorted([*_MODULE_OF, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(f"dualgp.{_MODULE_OF[name]}"), name)
    elif name in _MODULES or name in _PACKAGES:
        value = import_module(f"dualgp.{name}")
    else:
        raise AttributeError(f"module 'dualgp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
