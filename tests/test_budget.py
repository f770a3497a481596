"""How many rows get far weights: all, as many as a budget pays for, or none; the near field sees all in any case."""

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
    monkeypatch.setattr(policy, "FAR_ALL_UP_TO", N - 1)
    monkeypatch.setattr(budget, "FEWEST_ROWS", 50)
    monkeypatch.setattr(policy, "FAR_TRIAL", 200)


@pytest.fixture(scope="module")
def exact():
    return exact_posterior(KERNEL, NOISE, X, Y - 0.3, X_NEW)


def condition(**run):
    return MODEL.condition(X, Y, **SETTINGS | run)


def entries(num_far):
    return budget.PASSES * num_far**2 + N * num_far


def test_a_budget_pays_for_the_equations_of_some_rows_and_the_residuals_of_all():
    post = condition(max_passes=0.5)
    assert entries(post.num_far) <= 0.5 * N**2 < entries(post.num_far + 2) and post.n == N
    places, weights = np.asarray(post.all_rows.places), np.asarray(post.weights)
    targets = np.asarray(post.targets)
    A = shifted_gram(KERNEL, X)
    inside = A[np.ix_(places, places)] @ weights - targets[places]
    assert np.linalg.norm(inside) < 0.02 * np.linalg.norm(targets[places])
    np.testing.assert_allclose(post.residuals, targets - A[:, places] @ weights, atol=2e-5 * np.abs(targets).max())
    assert f"{post.num_far:,} random rows of {N:,}" in post.solution.message
    assert f"{post.num_far:,} random rows; near field" in post.report()


@pytest.mark.parametrize("max_passes", [0.2, 1.0])
def test_the_residual_is_that_of_all_rows_and_the_bound_holds(max_passes, exact):
    post = condition(max_passes=max_passes)
    weights = np.zeros((N, 9))
    weights[np.asarray(post.all_rows.places)] = post.weights
    residual = np.linalg.norm(Y - 0.3 - shifted_gram(KERNEL, X) @ weights[:, 0]) / np.linalg.norm(Y - 0.3)
    assert post.solution.residual[0] == pytest.approx(residual, rel=1e-5)
    error = np.abs(post.mean(X_NEW) - 0.3 - exact.mean)
    assert (error <= post.error_bound(X_NEW)).all()


def test_the_near_field_of_all_rows_mends_what_the_far_field_of_some_leaves(exact):
    near, far = (condition(max_passes=0.25, neighbours=k) for k in (60, 0))
    assert near.num_far == far.num_far < N
    near, far = (np.linalg.norm(post.mean(X_NEW) - 0.3 - exact.mean) for post in (near, far))
    assert near < 0.5 * far


def test_error_bars_are_not_narrower_than_the_exact_ones(exact):
    post = condition(max_passes=0.25, num_samples=400, num_features=2048, neighbours=20)
    ratio = post.std(X_NEW) ** 2 / exact.covariance.diagonal()
    assert ratio.min() > 1 - 4.5 * np.sqrt(2 / 400)
    assert (post.std(X_NEW) <= condition(num_far=0, neighbours=20).std(X_NEW) * (1 + 1e-5)).all()


def test_leaving_one_out_keeps_the_order_of_the_data():
    post = condition(max_passes=0.5)
    mean, std = post.leave_one_out()
    assert np.isfinite(mean).all() and (std > 0).all()
    A = shifted_gram(KERNEL, X)
    inverse = np.linalg.inv(A)
    expected = Y - (inverse @ (Y - 0.3)) / inverse.diagonal()
    assert np.corrcoef(mean, expected)[0, 1] > 0.99
    np.testing.assert_allclose(std, inverse.diagonal() ** -0.5, rtol=0.2)


def test_a_subset_that_is_solved_exactly_is_no_exact_posterior(exact):
    post = condition(max_passes=0.5, solver=dg.Cholesky())
    assert post.all_rows is not None and not post.is_exact
    assert "exact" not in post.report_size()
    assert (np.abs(post.mean(X_NEW) - 0.3 - exact.mean) <= post.error_bound(X_NEW)).all()


def test_refining_gives_far_weights_to_more_rows(exact):
    post = condition(max_passes=0.5)
    further = post.refine(key=KEY)
    assert further.num_far == 2 * post.num_far
    assert set(np.asarray(post.all_rows.places)) < set(np.asarray(further.all_rows.places))
    whole = further.refine(key=KEY, num_far=N, solver=dg.BlockDescent(block_size=60, tol=1e-4))
    assert whole.all_rows is None and whole.solution.result is dg.Result.CONVERGED
    np.testing.assert_array_equal(np.asarray(whole.x), X)
    np.testing.assert_allclose(whole.mean(X_NEW) - 0.3, exact.mean, atol=2e-3)
    np.testing.assert_allclose(whole.samples(X_NEW), condition(solver=dg.Cholesky()).samples(X_NEW), atol=0.02)


def test_refining_neighbours_alone_makes_a_far_field():
    post = condition(num_far=0)
    further = post.refine(key=KEY, num_far=200)
    assert further.num_far == 200 and further.solution.residual[0] < post.solution.residual[0] == 1.0


def test_an_update_is_free(exact):
    first = condition(max_passes=0.5)
    more = first.update(X_NEW, np.zeros(60), key=KEY)
    assert more.n == N + 60 and more.num_far == first.num_far
    every_x, every_y = np.concatenate([X, X_NEW]), np.concatenate([Y - 0.3, np.full(60, -0.3)])
    expected = exact_posterior(KERNEL, NOISE, every_x, every_y, X_NEW).mean
    assert (np.abs(more.mean(X_NEW) - 0.3 - expected) <= more.error_bound(X_NEW)).all()


def test_enough_of_a_budget_leaves_nothing_out():
    assert condition(max_passes=12.0).all_rows is None
    assert condition(max_seconds=600.0).all_rows is None


def test_seconds_are_a_budget_too():
    assert condition(max_seconds=1e-3).num_far == 0
    assert condition(max_seconds=1e-3, neighbours=0).num_far == budget.FEWEST_ROWS


def test_an_interrupted_solve_goes_on_with_the_same_rows(tmp_path):
    file = tmp_path / "solve.ckpt"
    rows = condition(max_passes=0.5).num_far
    (tmp_path / f"solve.ckpt.{rows}-rows").touch()  # begun, whatever the clock says now
    with pytest.raises(ValueError, match="not a checkpoint"):
        condition(max_seconds=1e-3, checkpoint=file)


def test_a_mesh_makes_no_difference():
    plain, sharded = (condition(max_passes=0.5, mesh=mesh) for mesh in (None, 1))
    np.testing.assert_array_equal(np.asarray(sharded.all_rows.places), np.asarray(plain.all_rows.places))
    np.testing.assert_allclose(sharded.mean(X_NEW), plain.mean(X_NEW), rtol=1e-5, atol=1e-6)


class TestAuto:
    """Nothing set: a far field where rows kept aside say that it is worth its price."""

    @pytest.fixture(autouse=True)
    def no_exact_solution(self, monkeypatch):
        monkeypatch.setattr(policy, "SOLVE_EXACTLY_UP_TO", 100)
        monkeypatch.setattr("dualgp.solvers.auto.SOLVE_EXACTLY_UP_TO", 100)

    def auto(self, kernel, y, **more):
        model = dg.GaussianProcess(kernel, NOISE, mean=0.3)
        settings = {"num_samples": 8, "num_features": 256, "key": KEY} | more
        return model.condition(X, y, **settings)

    def test_a_trend_over_long_distances_is_worth_a_far_field(self, monkeypatch):
        monkeypatch.setattr(policy, "NEIGHBOURS_OF_MANY", (8,))
        monkeypatch.setattr(policy, "FAR_ENTRIES", entries(400))
        kernel, rng = dg.RBF(1.5, 4.0), np.random.default_rng(5)
        f = dg.GaussianProcess(kernel, NOISE, mean=0.3).sample_prior(3, 1, key=jax.random.key(6))(X)[0]
        post = self.auto(kernel, f + np.sqrt(NOISE) * rng.normal(size=N))
        assert 0 < post.num_far < N and post.solution.validation.rows == N // 4
        assert post.neighbours == 8 and not post.solution.validation.is_alone

    def test_what_neighbours_know_alone_is_not_solved_for(self, monkeypatch):
        monkeypatch.setattr(policy, "FAR_ENTRIES", entries(400))
        post = self.auto(dg.Matern12(0.05, 1.0), Y)
        assert post.num_far == 0 and post.solution.passes == 0
        assert "kept aside" in post.report() and post.solution.validation.is_alone

    def test_rows_kept_aside_tell_the_truth(self, monkeypatch):
        """Their RMSE and coverage are those of new points, within sampling error."""
        monkeypatch.setattr(policy, "FAR_ALL_UP_TO", 10 * N)
        rng = np.random.default_rng(2)
        f = MODEL.sample_prior(3, 1, key=jax.random.key(5))(np.concatenate([X, X_NEW]))[0]
        y = f + np.sqrt(NOISE) * rng.normal(size=len(f))
        post = self.auto(KERNEL, y[:N])
        score = post.solution.validation
        mean = post.mean(X_NEW)
        rmse = np.sqrt(np.mean((mean - y[N:]) ** 2))
        assert post.num_far == N and score.rows == N // 4
        assert score.rmse == pytest.approx(rmse, rel=4 / np.sqrt(2 * 60))
        assert score.coverage == pytest.approx(0.9, abs=0.06)
        assert post.solution.result is dg.Result.CONVERGED and "kept aside" in post.solution.message
