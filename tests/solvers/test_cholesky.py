"""The oracle."""

import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, relative, shifted_gram
from dualgp.operators import DenseOperator


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cholesky_is_exact_in_float64_whatever_the_operator(dtype):
    x, y = data(150, dtype=dtype)
    solution = dg.solve(dg.KernelOperator(KERNELS["RBF"], x, NOISE), y, dg.Cholesky())
    matrix = shifted_gram(KERNELS["RBF"], x)
    assert solution.weights.dtype == np.float64
    assert relative(matrix @ solution.weights - y, y) < 1e-12
    np.testing.assert_allclose(solution.factor @ solution.factor.T, matrix, atol=1e-12)


def test_cholesky_factor_is_lower_triangular():
    x, y = data(30)
    factor = dg.solve(dg.KernelOperator(KERNELS["RBF"], x, NOISE), y, dg.Cholesky()).factor
    np.testing.assert_array_equal(factor, np.tril(factor))


def test_too_many_points_are_refused_with_the_memory_they_would_need():
    operator = dg.KernelOperator(dg.RBF(), np.zeros((200_000, 1), np.float32), NOISE, memory=0)
    with pytest.raises(MemoryError, match=r"n = 200,000 needs 298.0 GiB .* Pass solver='auto'"):
        dg.solve(operator, np.zeros(200_000, np.float32), dg.Cholesky(memory=1 << 30))


def test_an_indefinite_matrix_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"not positive definite .* Raise"):
        dg.solve(DenseOperator(np.diag([1.0, -1.0]), NOISE), np.ones(2), dg.Cholesky())


def test_auto_is_exact_for_few_points():
    x, y = data(50)
    assert dg.solve(dg.KernelOperator(KERNELS["RBF"], x, NOISE), y).factor is not None
