"""The conformance table (every public kernel and solver, each with settings suited to tests) and shared builders."""

import inspect
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from dualgp._arrays import wide
from dualgp.kernels import Product, Scale, Sum
from dualgp.solvers import Solver

D, N, NOISE = 3, 300, 0.1
SEEDS = (0, 1, 2)
STATIONARY = (dg.RBF, dg.Matern12, dg.Matern32, dg.Matern52)
SCALED = (*STATIONARY, dg.RationalQuadratic, dg.RoughSmooth, dg.Laplace, dg.Periodic)
NOISES = NOISE * np.exp(np.random.default_rng(7).uniform(-1.5, 1.5, N))  # one for each row
PER_DIMENSION = [0.7, 1.1, 2.0]

KERNELS = {
    **{kernel.__name__: kernel(0.9, 1.3) for kernel in SCALED},
    **{f"{kernel.__name__}-per-dimension": kernel(PER_DIMENSION, 0.7) for kernel in SCALED},
    "shared": dg.Matern32([0.9, 1.7], 1.1, widths=(1, 2)),
    "sum": dg.RBF(2.0, 0.5) + dg.Matern12(PER_DIMENSION, 0.4),
    "product": dg.Matern32(1.2, 0.9) * dg.RBF(PER_DIMENSION, 1.5),
    "scaled": 2.0 * dg.Matern52(0.8, 0.6),
    "sum-times-kernel": (dg.RBF(0.8, 0.5) + dg.Matern52(PER_DIMENSION, 0.3)) * dg.Matern12(3.0, 1.2),
    "RoughSmooth-details": dg.RoughSmooth(1.2, 0.8, 0.2, 0.15),
    "RationalQuadratic-wide": dg.RationalQuadratic(0.8, 1.2, 0.4),
    "Periodic-periods": dg.Periodic(PER_DIMENSION, 0.8, [2.0, 3.5, 5.0]),
    "Linear": dg.Linear(2.0, 0.9),
    "Linear-per-dimension": dg.Linear([2.0, 1.5, 4.0], 0.6, [0.5, -0.2, 1.0]),
    "Constant": dg.Constant(1.4),
    "trend": dg.Linear(3.0, 0.3) + dg.Constant(0.4) + dg.Matern32(0.9),
    "OnSphere": dg.OnSphere(dg.Matern32(0.9, 1.1), columns=(2, 0), radius=20.0),
    "Tanimoto": dg.Tanimoto(0.9),
    "On": dg.On(dg.RBF(0.8, 0.7), 1, 3),
    "mixed": dg.On(dg.Tanimoto(1.2), 0, 2) * dg.On(dg.Matern32(1.5), 2),
}
ON_COUNTS = ("Tanimoto", "mixed")  # kernels of non-negative whole numbers
COMPOSITIONS = {Sum, Product, Scale}


class SolverCase(NamedTuple):
    """A solver, the error of its predictions at the data (relative to b) that is allowed, and how it should end."""

    solver: Solver
    error: float
    result: dg.Result = dg.Result.CONVERGED


SOLVERS = {
    "Cholesky": SolverCase(dg.Cholesky(), 1e-8),
    "Auto": SolverCase(dg.Auto(), 1e-8),
    "BlockDescent": SolverCase(dg.BlockDescent(tol=1e-3), 2e-3),
    "CG": SolverCase(dg.CG(tol=1e-6), 1e-5),
    "SDD": SolverCase(dg.SDD(tol=1e-2, averaging=0.1), 2e-2),
    "SGD": SolverCase(dg.SGD(batch_size=64, num_steps=1000, averaging=0.01, tol=0.0), 0.4, dg.Result.BUDGET_REACHED),
}


def exported(base: type) -> set[type]:
    """The concrete subclasses of `base` among the package's public names."""
    public = (getattr(dg, name) for name in dg.__all__)
    return {c for c in public if isinstance(c, type) and issubclass(c, base) and not inspect.isabstract(c)}


def inputs(kernel: dg.Kernel, x: np.ndarray) -> np.ndarray:
    """The points, or counts made of them for a kernel that takes counts."""
    is_on_counts = any(kernel is KERNELS[name] for name in ON_COUNTS)
    return np.floor(2.0 * np.abs(x)).astype(x.dtype) if is_on_counts else x


def points(n: int = N, d: int = D, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def data(n: int = N, d: int = D, seed: int = 0, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    x = points(n, d, seed)
    y = np.sin(2.0 * x[:, 0]) + 0.3 * x.sum(axis=1) + 0.3 * np.random.default_rng(seed + 1000).normal(size=n)
    return x.astype(dtype), y.astype(dtype)


@eqx.filter_jit
def block(kernel: dg.Kernel, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    """k(x1, x2) in the precision of the inputs; compiled, because hundreds of small programs take longer than one."""
    return kernel(x1, x2)


def gram(kernel: dg.Kernel, x1: np.ndarray, x2: np.ndarray | None = None) -> np.ndarray:
    """k(x1, x2) in float64."""
    with wide():
        x1, x2 = (jnp.asarray(x, jnp.float64) for x in (x1, x1 if x2 is None else x2))
        return np.asarray(block(kernel, x1, x2))


def shifted_gram(kernel: dg.Kernel, x: np.ndarray, noise: float = NOISE) -> np.ndarray:
    """A = K + noise * I in float64."""
    return gram(kernel, x) + noise * np.eye(len(x))


class Exact(NamedTuple):
    """A Gaussian process posterior by textbook formulas."""

    mean: np.ndarray
    covariance: np.ndarray


def exact_posterior(kernel: dg.Kernel, noise: float, x: np.ndarray, y: np.ndarray, x_new: np.ndarray) -> Exact:
    cross = gram(kernel, x, x_new)
    half = np.linalg.solve(shifted_gram(kernel, x, noise), cross)
    return Exact(half.T @ y, gram(kernel, x_new) - cross.T @ half)


def relative(error: np.ndarray, reference: np.ndarray) -> float:
    """||error|| / ||reference||."""
    return float(np.linalg.norm(error) / np.linalg.norm(reference))
