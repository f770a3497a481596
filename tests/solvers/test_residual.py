"""The check on fresh rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, points
from dualgp._arrays import wide
from dualgp.solvers import residual


@pytest.fixture(scope="module")
def problem():
    x, y = data(300)
    operator = dg.KernelOperator(KERNELS["RBF"], x, NOISE)
    b = np.stack([y, points(300, 1, seed=2)[:, 0]], axis=1)
    weights = 0.9 * np.linalg.solve(operator.dense(), b) + 0.01 * points(300, 2, seed=3)
    exact = np.linalg.norm(b - operator.dense() @ weights, axis=0) / np.linalg.norm(b, axis=0)
    return operator, b, weights, exact


def check(problem, key):
    operator, b, weights, _ = problem
    with wide():
        return residual.fresh_residual(operator, jnp.asarray(b), jnp.asarray(weights), key)


def test_the_residual_is_exact_where_all_rows_are_checked(problem):
    found = check(problem, None)
    np.testing.assert_allclose(found.estimate, problem[3], rtol=1e-10)
    np.testing.assert_allclose(found.upper, problem[3], rtol=1e-10)
    assert found.passes == 1.0


def test_the_residual_on_some_rows_is_unbiased_and_its_upper_end_is_usually_above(problem, monkeypatch):
    monkeypatch.setattr(residual, "FRESH_ROWS", 60)
    found = [check(problem, key) for key in jax.random.split(jax.random.key(0), 200)]
    squares = np.stack([f.estimate for f in found]) ** 2
    error = squares.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(squares.mean(axis=0) - problem[3] ** 2) < 4 * error).all()
    above = np.mean([f.upper >= problem[3] for f in found], axis=0)
    assert (above > 0.9).all()
    assert found[0].passes == pytest.approx(0.2)


def test_a_zero_column_has_an_absolute_residual():
    np.testing.assert_array_equal(residual.column_norms(np.float32([[3.0, 0.0], [4.0, 0.0]])), [5.0, 1.0])
