"""Budgets that are too short to converge on all rows: spent on some of the rows, without losing anything else."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, exact_posterior, points, shifted_gram
from dualgp import budget
from dualgp.operators import policy

KERNEL, KEY, N = KERNELS["Matern32"], jax.random.key(0), 1500
X, X_NEW = points(N), points(60, seed=3)
Y = 0.3 + np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=N)
MODEL = dg.GaussianProcess(KERNEL, NOISE, mean=0.3)
SETTINGS = {"solver": dg.BlockDescent(block_size=60), "num_samples": 8, "num_features": 512, "key": KEY}


@pytest.fixture(autouse=True)
def these_are_many_rows(monkeypatch):
    monkeypatch.setattr(policy, "SUBSET_FROM", N - 1)
    monkeypatch.setattr(budget, "FEWEST_ROWS", 50)


@pytest.fixture(scope="module")
def exact():
    return exact_posterior(KERNEL, NOISE, X, Y - 0.3, X_NEW)


def condition(**run):
    return MODEL.condition(X, Y, **SETTINGS | run)


def test_a_short_budget_solves_the_equations_of_some_rows():
    post = condition(max_passes=0.5)
    solved = post.layout.n
    assert solved == round(N * np.sqrt(0.5 / budget.PASSES)) and post.n == N
    A = shifted_gram(KERNEL, np.asarray(post.x))
    targets, weights = np.asarray(post.targets), np.asarray(post.weights)
    assert np.linalg.norm(A @ weights - targets) < 0.02 * np.linalg.norm(targets)
    assert post.solution.result is dg.Result.BUDGET_REACHED
    assert f"{solved:,} random ones of {N:,}" in post.solution.message
    assert f"{solved:,} of {N:,} points" in post.report()


def test_it_predicts_better_than_as_many_passes_over_all_rows(exact):
    few, all_rows = (condition(max_passes=0.25, all_rows=everything) for everything in (False, True))
    assert all_rows.left_out is None
    few, all_rows = (np.linalg.norm(post.mean(X_NEW) - 0.3 - exact.mean) for post in (few, all_rows))
    assert few < 0.8 * all_rows


@pytest.mark.parametrize("max_passes", [0.2, 1.0])
def test_the_residual_is_that_of_all_rows_and_the_bound_holds(max_passes, exact):
    post = condition(max_passes=max_passes)
    weights = np.zeros((N, 9))
    weights[np.delete(np.arange(N), post.left_out.places)] = post.weights
    residual = np.linalg.norm(Y - 0.3 - shifted_gram(KERNEL, X) @ weights[:, 0]) / np.linalg.norm(Y - 0.3)
    assert post.solution.residual[0] == pytest.approx(residual, rel=1e-5)
    error = np.abs(post.mean(X_NEW) - 0.3 - exact.mean)
    assert (error <= post.error_bound(X_NEW)).all()


def test_error_bars_are_not_narrower_than_the_exact_ones(exact):
    post = condition(max_passes=0.25, num_samples=400, num_features=2048)
    ratio = post.std(X_NEW) ** 2 / exact.covariance.diagonal()
    assert ratio.mean() > 1.5 and ratio.min() > 1 - 4.5 * np.sqrt(2 / 400)


def test_leaving_one_out_keeps_the_order_of_the_data():
    post = condition(max_passes=0.5)
    mean, std = post.leave_one_out()
    assert np.isfinite(mean).all() and (std > 0).all()
    assert np.corrcoef(mean, Y)[0, 1] > 0.8
    places = post.left_out.places
    np.testing.assert_allclose(mean[places], post.mean(X[places]), rtol=1e-6)


def test_a_subset_that_is_solved_exactly_is_no_exact_posterior(exact):
    post = condition(max_passes=0.5, solver="auto")
    assert post.left_out is not None and not post.is_exact
    assert "exact" not in post.report_size()
    mean, std = post.leave_one_out()
    assert mean.shape == std.shape == (N,) and np.corrcoef(mean, Y)[0, 1] > 0.8
    assert (np.abs(post.mean(X_NEW) - 0.3 - exact.mean) <= post.error_bound(X_NEW)).all()
    assert (post.std(X_NEW) ** 2 >= exact.covariance.diagonal() - 1e-9).all()


def test_refining_takes_in_the_rows_that_were_left_out(exact):
    post = condition(max_passes=0.5)
    further = post.refine(key=KEY, max_passes=1.0)
    assert post.layout.n < further.layout.n < N
    assert set(np.delete(np.arange(N), post.left_out.places)) < set(np.delete(np.arange(N), further.left_out.places))
    whole = further.refine(key=KEY, solver=dg.BlockDescent(block_size=60, tol=1e-4))
    assert whole.left_out is None and whole.solution.result is dg.Result.CONVERGED
    np.testing.assert_array_equal(np.asarray(whole.x), X)
    np.testing.assert_allclose(whole.mean(X_NEW) - 0.3, exact.mean, atol=2e-3)
    np.testing.assert_allclose(whole.samples(X_NEW), condition(solver=dg.Cholesky()).samples(X_NEW), atol=0.02)


def test_an_update_knows_of_them_too(exact):
    post = MODEL.condition(X[:-100], Y[:-100], **SETTINGS, max_passes=0.5)
    assert post.left_out is None  # 1,400 are not many rows here
    first = condition(max_passes=0.5)
    more = first.update(X_NEW, np.zeros(60), key=KEY, solver=dg.BlockDescent(block_size=60, tol=1e-4))
    assert more.n == N + 60 and more.left_out is None
    every_x, every_y = np.concatenate([X, X_NEW]), np.concatenate([Y - 0.3, np.full(60, -0.3)])
    expected = exact_posterior(KERNEL, NOISE, every_x, every_y, X_NEW).mean
    np.testing.assert_allclose(more.mean(X_NEW) - 0.3, expected, atol=2e-3)


def test_enough_of_a_budget_leaves_nothing_out():
    assert condition(max_passes=12.0).left_out is None
    assert condition(max_seconds=600.0).left_out is None


def test_seconds_are_a_budget_too():
    post = condition(max_seconds=1e-3)
    assert budget.FEWEST_ROWS <= post.layout.n < N / 2


def test_an_interrupted_solve_goes_on_with_the_same_rows(tmp_path, monkeypatch):
    file = tmp_path / "solve.ckpt"
    whole = condition(max_passes=0.5)
    rows = whole.layout.n
    (tmp_path / f"solve.ckpt.{rows}-rows").touch()  # begun, whatever the clock says now
    with pytest.raises(ValueError, match="not a checkpoint"):
        condition(max_seconds=1e-3, checkpoint=file)


def test_a_mesh_makes_no_difference():
    plain, sharded = (condition(max_passes=0.5, mesh=mesh) for mesh in (None, 1))
    np.testing.assert_array_equal(sharded.left_out.places, plain.left_out.places)
    np.testing.assert_allclose(sharded.mean(X_NEW), plain.mean(X_NEW), rtol=1e-6, atol=1e-8)
