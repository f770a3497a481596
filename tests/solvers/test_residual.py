"""The check on fresh rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, points, relative, shifted_gram
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
        return residual.check_residual(operator, jnp.asarray(b), jnp.asarray(weights), key)


def test_the_residual_is_exact_where_all_rows_are_checked(problem):
    found = check(problem, jax.random.key(0))
    np.testing.assert_allclose(found.estimate, problem[3], rtol=1e-10)
    np.testing.assert_allclose(found.upper, problem[3], rtol=1e-10)
    operator, b, weights, _ = problem
    np.testing.assert_allclose(found.rows, b - operator.dense() @ weights, atol=1e-12)
    assert found.passes == 1.0


def test_the_residual_on_some_rows_is_unbiased_and_its_upper_end_is_usually_above(problem, monkeypatch):
    monkeypatch.setattr(residual, "FRESH_ROWS", 60)
    found = [check(problem, key) for key in jax.random.split(jax.random.key(0), 200)]
    squares = np.stack([f.estimate for f in found]) ** 2
    error = squares.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(squares.mean(axis=0) - problem[3] ** 2) < 4 * error).all()
    above = np.mean([f.upper >= problem[3] for f in found], axis=0)
    assert (above > 0.95).all()
    assert found[0].passes == pytest.approx(0.2)


def test_a_zero_column_has_an_absolute_residual():
    np.testing.assert_array_equal(residual.column_norms(np.float32([[3.0, 0.0], [4.0, 0.0]])), [5.0, 1.0])


def true_residual(kernel, x, noise, b, weights):
    b = b.astype(np.float64)
    return relative(b - shifted_gram(kernel, x, noise) @ weights.astype(np.float64), b)


@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-2, 1e-1, 1.0])
@pytest.mark.parametrize(
    "kernel", [dg.Matern32(1.0, 1.3), dg.RBF(1.0), dg.Matern12(0.3)], ids=["rough", "smooth", "short"]
)
@pytest.mark.parametrize("solver", [dg.BlockDescent(tol=1e-6, max_passes=15), dg.CG(tol=1e-6)], ids=["blocks", "cg"])
def test_rounding_never_hides_a_residual_above_the_upper_limit(solver, kernel, noise):
    for n, d, memory in ((1500, 3, None), (700, 12, 0)):
        x, y = data(n, d=d, dtype=np.float32)
        solution = dg.solve(
            dg.KernelOperator(kernel, x, noise, memory=memory), y, solver, key=jax.random.key(0), max_passes=60
        )
        assert true_residual(kernel, x, noise, y, solution.weights) <= solution.residual_upper[0]


@pytest.mark.parametrize("kernel", [dg.Matern12(0.14, 5.0), dg.Matern52(0.14, 5.0), dg.RBF(0.14, 5.0)], ids=type)
@pytest.mark.parametrize("size", [1.0, 10.0, 50.0])
def test_coordinates_of_a_thousand_lengthscales_do_not_hide_a_residual_either(size, kernel):
    # They are rounded by a hundred times as much as an entry of K, where rows are near each other.
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = size * rng.normal(size=(300, 1))
        x[150:] = x[:150] + 1e-3 * rng.normal(size=(150, 1))
        x, y = x.astype(np.float32), np.sin(x[:, 0]) + 0.3 * rng.normal(size=300)
        solution = dg.solve(
            dg.KernelOperator(kernel, x, 0.006), y, dg.BlockDescent(block_size=64), key=jax.random.key(0)
        )
        found = true_residual(kernel, x, 0.006, y, solution.weights)
        assert found <= solution.residual_upper[0] < solution.residual[0] + 1e-2


def test_ordinary_coordinates_do_not_stretch_the_limit():
    x, _ = data(400)
    assert dg.KernelOperator(dg.Matern32(1.0), x, 0.1).stretch() < 1.0
    assert dg.KernelOperator(dg.Matern32(1.0), 100.0 * x[:, :1], 0.1).stretch() > 1.0
    assert dg.KernelOperator(dg.Tanimoto(), np.ones((5, 3), np.uint8), 0.1).stretch() == 0.0


@pytest.mark.parametrize("draw", ["normal", "laplace"])
def test_a_run_that_is_checked_until_it_passes_is_above_its_limit_in_at_most_one_of_twenty(draw, monkeypatch):
    monkeypatch.setattr(residual, "FRESH_ROWS", 100)
    x, _ = data(600)
    operator = dg.KernelOperator(KERNELS["Matern32"], x, NOISE)
    matrix, solver = operator.dense(), dg.BlockDescent(tol=0.05)
    too_low = 0
    for seed in range(300):
        b = getattr(np.random.default_rng(seed), draw)(size=600)
        solution = dg.solve(operator, b, solver, key=jax.random.key(seed))
        assert solution.result is dg.Result.CONVERGED
        too_low += relative(b - matrix @ solution.weights, b) > solution.residual_upper[0]
    assert too_low <= 15


def test_later_checks_are_stricter_and_all_of_them_together_doubt_one_in_twenty(problem, monkeypatch):
    doubts = []
    monkeypatch.setattr(residual, "upper_limit_of_mean", lambda values, n, doubt: doubts.append(doubt) or values[0])
    operator, b, weights, _ = problem
    with wide():
        for number in range(2000):
            residual.check_residual(operator, b, weights, jax.random.key(0), number)
    assert (np.diff(doubts) < 0).all()
    assert sum(doubts) == pytest.approx(0.05, rel=1e-3)


def test_a_few_rows_that_carry_the_residual_may_be_missed():
    # The limit that docstrings decline to promise: nothing in a sample tells of rows that are not in it.
    squares = np.where(np.arange(1500) < 3, 1e4, 1.0)[:, None]
    sample = squares[np.random.default_rng(0).choice(1500, 100, replace=False)]
    assert residual.upper_limit_of_mean(sample, 1500, 0.03)[0] < squares.mean()


@pytest.mark.parametrize("solver", [dg.CG(tol=1e-6), dg.BlockDescent(), dg.Cholesky()], ids=type)
def test_residuals_of_every_row_are_known_where_all_were_checked(solver):
    x, y = data(200)
    operator = dg.KernelOperator(KERNELS["RBF"], x, NOISE)
    for b in (y, 1e9 * np.stack([y, y**2], axis=1)):
        solution = dg.solve(operator, b, solver, key=jax.random.key(0))
        assert solution.residuals.shape == b.shape
        np.testing.assert_allclose(
            solution.residuals, b - operator.dense() @ solution.weights, atol=1e-12 * np.abs(b).max()
        )


@pytest.mark.parametrize("steps", [10, 13])
def test_otherwise_conjugate_gradients_know_them_after_a_refresh_and_block_descent_always(steps, monkeypatch):
    monkeypatch.setattr(residual, "FRESH_ROWS", 50)
    x, y = data(200)
    operator = dg.KernelOperator(KERNELS["RBF"], x, NOISE)
    solver = dg.CG(tol=1e-12, max_iterations=steps, preconditioner=dg.PivotedCholesky(rank=20))
    solution = dg.solve(operator, y, solver, key=jax.random.key(0))
    assert solution.steps == steps
    if steps == 10:
        np.testing.assert_allclose(solution.residuals, y - operator.dense() @ solution.weights, atol=1e-12)
    else:
        assert solution.residuals is None
    solution = dg.solve(operator, y, dg.BlockDescent(), key=jax.random.key(0))
    np.testing.assert_allclose(solution.residuals, y - operator.dense() @ solution.weights, atol=1e-12)


def test_a_kept_residual_that_is_not_the_true_one_is_not_trusted(problem, monkeypatch):
    monkeypatch.setattr(residual, "FRESH_ROWS", 100)
    operator, b, weights, exact = problem
    true = b - operator.dense() @ weights
    with wide():
        for kept, is_true in ((true, True), (0.1 * true, False)):
            place = (jnp.asarray(array) for array in (b, weights))
            found = residual.check_residual(operator, *place, jax.random.key(0), kept=jnp.asarray(kept))
            assert (found.rows is not None) == is_true
            assert (found.upper >= exact * (1 - 1e-9)).all()
