"""Every public kernel and every public solver passes these."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import (
    COMPOSITIONS,
    KERNELS,
    NOISE,
    NOISES,
    SEEDS,
    SOLVERS,
    data,
    exported,
    gram,
    inputs,
    points,
    relative,
    shifted_gram,
)
from dualgp._arrays import wide
from dualgp.solvers import Solver

each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
each_solver = pytest.mark.parametrize("case", SOLVERS.values(), ids=SOLVERS)


def test_the_table_lists_exactly_the_exported_kernels():
    assert {type(kernel) for kernel in KERNELS.values()} == exported(dg.Kernel) | COMPOSITIONS


def test_the_table_lists_each_lengthscale_kernel_with_one_and_with_many():
    with_lengthscale = {c for c in exported(dg.Kernel) if "lengthscale" in c.__dataclass_fields__}
    for ndim in (0, 1):
        listed = {type(k) for k in KERNELS.values() if hasattr(k, "lengthscale") and k.lengthscale.ndim == ndim}
        assert listed == with_lengthscale


def test_the_table_lists_exactly_the_exported_solvers():
    assert {type(case.solver) for case in SOLVERS.values()} == exported(Solver)


@each_kernel
def test_kernel_matrix_is_symmetric_and_positive_semi_definite(kernel):
    matrix = gram(kernel, inputs(kernel, points(60)))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12 * len(matrix)


@each_kernel
def test_kernel_diagonal_agrees_with_the_block(kernel):
    x = inputs(kernel, points(60))
    with wide():
        diagonal = np.asarray(kernel.diagonal(jnp.asarray(x)))
    assert diagonal.dtype == np.float64
    np.testing.assert_allclose(diagonal, np.diagonal(gram(kernel, x)), rtol=1e-13)


@each_kernel
def test_kernel_in_float32_agrees_with_float64_under_jit_or_not(kernel):
    x1, x2 = (inputs(kernel, x) for x in (points(60), points(40, seed=1)))
    for function in (kernel, jax.jit(lambda a, b: kernel(a, b))):
        values = np.asarray(function(x1.astype(np.float32), x2.astype(np.float32)))
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, gram(kernel, x1, x2), atol=3e-6)


@each_kernel
def test_feature_products_average_to_the_kernel(kernel):
    x = inputs(kernel, 0.7 * points(12, dtype=np.float32))
    maps = [kernel.features(key, 256, x.shape[1]) for key in jax.random.split(jax.random.key(0), 128)]
    products = np.stack([np.asarray(phi(x) @ phi(x).T, np.float64) for phi in maps])
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert error.max() < 0.02 * float(kernel.diagonal(x)[0])  # sharp enough to tell kernels apart
    assert (np.abs(products.mean(axis=0) - gram(kernel, x)) <= 4.5 * error + 1e-5).all()


@each_solver
@each_kernel
def test_solver_reaches_the_cholesky_solution(case, kernel):
    for seed, noise in zip(SEEDS, (NOISE, NOISE, NOISES), strict=True):
        x, y = data(seed=seed)
        x = inputs(kernel, x)
        b = np.stack([y, np.random.default_rng(seed).normal(size=len(y))], axis=1)
        solution = dg.solve(dg.KernelOperator(kernel, x, noise), b, case.solver, key=jax.random.key(seed))
        matrix = gram(kernel, x) + np.diag(np.broadcast_to(noise, len(x)))
        exact = np.linalg.solve(matrix, b)
        assert solution.result is case.result
        assert relative(gram(kernel, x) @ (solution.weights - exact), b) <= case.error
        residual = np.linalg.norm(b - matrix @ solution.weights, axis=0) / np.linalg.norm(b, axis=0)
        np.testing.assert_allclose(solution.residual, residual, rtol=1e-4, atol=1e-9)


LARGE = 2500  # rows: the check of a solution sees a sample of them
type_name = lambda value: type(value).__name__


@cache
def large_problem(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, right-hand sides and A in float64."""
    x, y = data(LARGE)
    x = inputs(KERNELS[name], x.astype(np.float32).astype(np.float64))
    b = np.stack([y, np.random.default_rng(0).normal(size=LARGE)], axis=1).astype(np.float32)
    return x, b.astype(np.float64), shifted_gram(KERNELS[name], x)


@pytest.mark.parametrize("memory", [0, 1 << 30], ids=["streamed", "kept"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", [dg.BlockDescent(tol=1e-3), dg.CG(tol=1e-3), dg.SDD(tol=1e-2)], ids=type_name)
@pytest.mark.parametrize("name", ["sum-times-kernel", "Tanimoto"])
def test_a_residual_that_is_estimated_from_some_rows_is_that_of_all(name, solver, dtype, memory):
    x, b, matrix = large_problem(name)
    operator = dg.KernelOperator(KERNELS[name], x.astype(dtype), NOISE, memory=memory, dtype=dtype)
    solution = dg.solve(operator, b.astype(dtype), solver, key=jax.random.key(0))
    assert solution.result is dg.Result.CONVERGED
    residual = np.linalg.norm(b - matrix @ solution.weights, axis=0) / np.linalg.norm(b, axis=0)
    two_errors = solution.residual_upper - solution.residual
    assert (two_errors > 0).all()  # not all rows were seen
    assert (np.abs(residual - solution.residual) <= 2.0 * two_errors).all()
