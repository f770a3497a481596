"""Stopped at any time, the samples are never more certain than the exact posterior.

Weights are P @ targets for a matrix P that does not depend on the samples, so with u = P^T k_x a sample's variance is
k - 2 u.k_x + u.A u, and that is the exact one plus ||u - A^-1 k_x||_A^2.
"""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, gram, points, shifted_gram
from dualgp.solvers.solve import solve_run

KERNEL, KEY, N = KERNELS["Matern32"], jax.random.key(0), 60
X, Y = data(N)
A = shifted_gram(KERNEL, X)
X_NEW = np.concatenate([points(200, seed=9), X[:20], 10.0 * points(20, seed=8)])
SOLVERS = {
    "SDD": dg.SDD(step_size=2.0, batch_size=15, averaging=0.05, tol=0.0),
    "BlockDescent": dg.BlockDescent(block_size=12, tol=0.0),
}
each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
each_budget = pytest.mark.parametrize("max_passes", [1.25, 12.5, 125.0])


def linear_map(solver, max_passes, key=KEY):
    """P, by solving for the mean's column and the columns of the identity together."""
    b = np.concatenate([Y[:, None], np.eye(N)], axis=1)
    return dg.solve(dg.KernelOperator(KERNEL, X, NOISE), b, solver, key=key, max_passes=max_passes).weights[:, 1:]


@each_solver
@each_budget
def test_sample_variance_is_never_below_the_exact_one(solver, max_passes):
    cross = gram(KERNEL, X, X_NEW)
    u, best = linear_map(solver, max_passes).T @ cross, np.linalg.solve(A, cross)
    prior = np.diagonal(gram(KERNEL, X_NEW))
    variance = prior - 2.0 * np.sum(u * cross, axis=0) + np.sum(u * (A @ u), axis=0)
    exact = prior - np.sum(cross * best, axis=0)
    assert (variance >= exact - 1e-6).all()
    excess = np.sum((u - best) * (A @ (u - best)), axis=0)
    np.testing.assert_allclose(variance - exact, excess, atol=1e-10)
    assert max_passes > 2 or excess.max() > 0.05  # stopped early enough for the claim to mean something


@each_solver
@each_budget
def test_the_weights_of_mean_and_samples_are_one_linear_map_of_the_targets(solver, max_passes, monkeypatch):
    keys = []

    def recording_solve(operator, b, solver, run):
        keys.append(run.key)
        return solve_run(operator, b, solver, run)

    monkeypatch.setattr("dualgp.fields.solve_run", recording_solve)
    model = dg.GaussianProcess(KERNEL, NOISE)
    post = model.condition(X, Y, solver=solver, num_samples=5, num_features=256, key=KEY, max_passes=max_passes)
    expected = linear_map(solver, max_passes, keys[0]) @ np.asarray(post.targets)
    np.testing.assert_allclose(np.asarray(post.weights), expected, rtol=1e-7, atol=1e-9)


def test_the_spread_of_early_stopped_samples_is_not_below_the_exact_one():
    model = dg.GaussianProcess(KERNEL, NOISE)
    early = {"solver": SOLVERS["SDD"], "max_passes": 12.5, "num_samples": 500, "num_features": 2048}
    spread = model.condition(X, Y, key=KEY, **early).std(X_NEW)
    exact = model.condition(X, Y, solver=dg.Cholesky(), num_samples=0).std(X_NEW)
    assert (spread >= exact * (1 - 4.5 / np.sqrt(2 * 500)) - 0.01).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nor_if_the_residual_of_all_columns_decided_when_to_stop(seed):
    # The identity is exact for a number of steps that does not depend on the samples. The automatic stop looks at them
    # too: what that changes drowns in the error of 1,000 samples, here averaged over many points.
    model, num_samples = dg.GaussianProcess(KERNEL, NOISE), 1000
    solver = dg.BlockDescent(block_size=12, tol=0.3)
    early = model.condition(X, Y, solver=solver, num_samples=num_samples, num_features=2048, key=jax.random.key(seed))
    exact = model.condition(X, Y, solver=dg.Cholesky(), num_samples=0)
    ratio = early.std(X_NEW) / exact.std(X_NEW)
    assert early.solution.result is dg.Result.CONVERGED
    assert early.solution.residual.max() > 0.01  # stopped early indeed
    assert ratio.mean() > 0.99
    assert ratio.min() > 1 - 4.5 / np.sqrt(2 * num_samples)
