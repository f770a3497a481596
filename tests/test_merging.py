"""Rows with equal inputs are one row, and nobody sees it."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import gram, points
from dualgp._arrays import wide
from dualgp.learning import Exact, conditional, log_likelihood
from dualgp.learning.blocks import Shape, find_blocks
from dualgp.learning.likelihood import as_group, likelihood_and_gradient
from dualgp.learning.problem import make_problem
from dualgp.learning.rows import as_rows, merge

KEY = jax.random.key(0)


def repeated(n=300, times=3, k=None, seed=0):
    """Rows that come several times with different targets, in random order, and some that come once."""
    rng = np.random.default_rng(seed)
    unique = rng.uniform(-2, 2, (n, 2))
    x = unique[np.r_[np.arange(n), rng.integers(0, n // 2, (times - 1) * n)]]
    x = x[rng.permutation(len(x))]
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=len(x))
    return x, y if k is None else np.stack([y + j * rng.normal(size=len(x)) for j in range(k)], axis=1)


@pytest.mark.parametrize("noise", [None, "each"])
@pytest.mark.parametrize("solver", ["auto", dg.BlockDescent(tol=1e-7)], ids=["exact", "iterated"])
def test_predictions_equal_those_of_rows_that_were_not_merged(solver, noise):
    x, y = repeated()
    model, x_new = dg.GaussianProcess(dg.Matern32(0.8), 0.09), points(30, 2, seed=1)
    noise = None if noise is None else np.random.default_rng(1).uniform(0.02, 0.5, len(y))
    run = {"solver": solver, "noise": noise, "dtype": np.float64, "key": KEY, "neighbours": 0}
    merged, plain = (model.condition(x, y, merge=merge, **run) for merge in (True, False))
    assert merged.n == plain.n == 900 and merged.x.shape == (300, 2) and plain.x.shape == (900, 2)
    np.testing.assert_allclose(merged.mean(x_new), plain.mean(x_new), atol=1e-6)
    np.testing.assert_allclose(merged.std(x_new), plain.std(x_new), rtol=1e-7 if solver == "auto" else 0.7)
    assert "900 points (300 different inputs)" in merged.report()


def test_rows_with_equal_inputs_leave_together():
    x, y = repeated(60)
    kernel, noise = dg.Matern32(0.8), np.random.default_rng(1).uniform(0.02, 0.5, len(y))
    mean, std = dg.GaussianProcess(kernel, 0.09).condition(x, y, noise=noise, num_samples=0).leave_one_out()
    for i in range(0, len(y), 7):
        rest = np.any(x != x[i], axis=1)
        A, cross = gram(kernel, x[rest]) + np.diag(noise[rest]), gram(kernel, x[rest], x[i : i + 1])[:, 0]
        u = np.linalg.solve(A, cross)
        np.testing.assert_allclose(mean[i], u @ y[rest], atol=1e-8)
        np.testing.assert_allclose(std[i] ** 2, 1.0 - u @ cross + noise[i], atol=1e-8)


def test_more_of_the_same_rows_can_follow():
    x, y = repeated()
    model, x_new = dg.GaussianProcess(dg.Matern32(0.8), 0.09), points(30, 2, seed=1)
    post = model.condition(x[:600], y[:600], num_samples=3, key=KEY).update(x[600:], y[600:], key=KEY)
    whole = model.condition(x, y, merge=False, num_samples=0)
    assert post.n == 900
    np.testing.assert_allclose(post.mean(x_new), whole.mean(x_new), atol=1e-8)
    assert post.leave_one_out()[0].shape == (900,)


def test_a_file_keeps_the_rows_as_they_were_given(tmp_path):
    x, y = repeated()
    post = dg.GaussianProcess(dg.Matern32(0.8), 0.09).condition(x, y, num_samples=2, key=KEY)
    dg.save(post, tmp_path / "merged.dgp")
    again = dg.load(tmp_path / "merged.dgp")
    assert again.n == 900
    for ours, theirs in zip(again.leave_one_out(), post.leave_one_out(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(
    "role, kind", [("added", "none"), ("added", "each"), ("added", "of the group"), ("factor", "each")]
)
def test_the_likelihood_of_merged_rows_is_that_of_all_rows_up_to_a_constant(role, kind, outputs):
    x, y = repeated(40, k=outputs)
    rng = np.random.default_rng(5)
    group = np.unique(x, axis=0, return_inverse=True)[1].ravel()
    noise = {"none": None, "each": rng.uniform(0.5, 2, len(x)), "of the group": rng.uniform(0.5, 2, 40)[group]}[kind]
    rows = as_rows(x, y, noise, role)
    merged, differences = merge(rows), []
    assert len(merged.y) == (len(x) if role == "added" and kind == "each" else 40)
    for variance in (0.05, 0.3):
        model = dg.GaussianProcess(dg.Matern32([0.8, 1.2]), variance, [0.1, 0.2] if outputs else 0.1)
        problem = make_problem(model, merged, {})
        start, group = problem.parameters.start, as_group(*merged)
        value, gradient = likelihood_and_gradient(problem.parameters, start, group)
        steps = 1e-5 * np.eye(len(start))
        ahead, behind = (
            [likelihood_and_gradient(problem.parameters, start + s, group)[0] for s in sign * steps] for sign in (1, -1)
        )
        np.testing.assert_allclose(gradient, (np.array(ahead) - behind) / 2e-5, rtol=1e-5, atol=1e-5)
        blocks = find_blocks(
            problem, start, np.arange(problem.n), 10**6, Shape(16, 200), KEY
        )  # given all that come before
        parts = [conditional.likelihood_and_gradient(problem.parameters, start, some) for some in blocks]
        np.testing.assert_allclose(sum(part[0] for part in parts), value, rtol=1e-10)
        np.testing.assert_allclose(sum(part[1] for part in parts), gradient, rtol=1e-7, atol=1e-7)
        with wide():
            differences.append(value - _dense(model, x, y, rows))
    np.testing.assert_allclose(differences[0], differences[1], atol=1e-8)


def _dense(model, x, y, rows):
    variances = rows.variances(model.noise)
    A = gram(model.kernel, x) + np.diag(np.full(len(x), float(model.noise)) if variances is None else variances)
    deviation = np.reshape(y, (len(x), -1)) - model.mean
    half = np.linalg.solve(np.linalg.cholesky(A), deviation)
    return -0.5 * np.sum(half**2) - 0.5 * deviation.shape[1] * (np.linalg.slogdet(A)[1] + len(x) * np.log(2 * np.pi))


def test_learning_from_merged_rows_is_learning_from_all():
    x, y = repeated(150)
    start = dg.GaussianProcess(dg.RBF(1.0), 0.2)
    learned = dg.learn(start, x, y, method=Exact(num_starts=1), priors=None).model
    best = log_likelihood(learned, x, y)
    for factor in (0.97, 1.03):
        other = dg.GaussianProcess(learned.kernel, learned.noise * factor, learned.mean)
        assert log_likelihood(other, x, y) < best
    assert 0.07 < float(learned.noise) < 0.115


@pytest.mark.parametrize("share", [0.05, 1.0])
def test_copies_do_not_drive_the_noise_to_zero(share):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (200, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=200)
    again = np.r_[np.arange(200), np.arange(int(200 * share))]
    start = dg.GaussianProcess(dg.RBF(1.0), 0.2)
    noises = [float(dg.learn(start, x[rows], y[rows], key=KEY).model.noise) for rows in (np.arange(200), again)]
    assert 0.95 * noises[0] < noises[1] < 2.1 * noises[0]
