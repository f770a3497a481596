"""Conditioning, updating with new data, and what a posterior says about itself."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, exact_posterior, points, relative, shifted_gram
from dualgp import fields

KEY = jax.random.key(0)
KERNEL = KERNELS["Matern32"]
MODEL = dg.GaussianProcess(KERNEL, NOISE)
X, Y = data(200)
X_NEW = points(50, seed=7)
SDD = dg.SDD(tol=1e-3, averaging=0.05, num_steps=20_000)
SMALL = {"num_samples": 4, "num_features": 256}


@pytest.fixture(scope="module")
def stopped_early():
    return MODEL.condition(X, Y, solver=dg.SDD(num_steps=10, batch_size=32), key=KEY, neighbours=0, **SMALL)


def test_an_update_equals_conditioning_on_everything():
    whole = MODEL.condition(X, Y, solver=dg.Cholesky(), num_samples=0)
    updated = MODEL.condition(X[:150], Y[:150], solver=dg.Cholesky(), key=KEY, **SMALL).update(
        X[150:], Y[150:], key=KEY
    )
    np.testing.assert_allclose(updated.mean(X_NEW), whole.mean(X_NEW), atol=1e-10)
    np.testing.assert_allclose(updated.std(X_NEW), whole.std(X_NEW), atol=1e-10)


def test_an_update_keeps_the_prior_functions_and_solves_for_all_targets():
    before = MODEL.condition(X[:150], Y[:150], solver=dg.Cholesky(), key=KEY, **SMALL)
    after = before.update(X[150:], Y[150:], key=jax.random.key(1))
    assert after.prior is before.prior
    np.testing.assert_array_equal(after.targets[:150], before.targets)
    np.testing.assert_allclose(shifted_gram(KERNEL, X) @ np.asarray(after.weights), after.targets, atol=1e-9)


def test_an_iterative_update_needs_fewer_passes_than_starting_again():
    solver = dg.SDD(tol=1e-2, averaging=0.05)
    passes = np.zeros((3, 2))  # the number of passes to a tolerance depends on the key
    for seed in range(3):
        key = jax.random.key(seed)
        few = MODEL.condition(X[:196], Y[:196], solver=solver, key=key, neighbours=0, **SMALL)
        updated = few.update(X[196:], Y[196:], solver=solver, key=key)
        scratch = MODEL.condition(X, Y, solver=solver, key=key, **SMALL)
        assert updated.solution.result is scratch.solution.result is dg.Result.CONVERGED
        np.testing.assert_allclose(updated.mean(X_NEW), scratch.mean(X_NEW), atol=0.05)
        passes[seed] = updated.solution.passes, scratch.solution.passes
    assert passes[:, 0].mean() < 0.8 * passes[:, 1].mean()


def test_an_update_with_nothing_changes_nothing():
    post = MODEL.condition(X, Y, num_samples=0)
    assert post.update(np.zeros((0, 3)), np.zeros(0)) is post


def test_error_bound_holds_everywhere_for_an_early_stopped_mean(stopped_early):
    error = np.abs(stopped_early.mean(X_NEW) - exact_posterior(KERNEL, NOISE, X, Y, X_NEW).mean)
    assert error.max() > 0.05
    assert (error <= stopped_early.error_bound()).all()


@pytest.mark.parametrize("num_steps", [1, 10, 100])
def test_error_bound_at_points_holds_for_an_early_stopped_mean(num_steps):
    post = MODEL.condition(X, Y, solver=dg.SDD(num_steps=num_steps, batch_size=32), key=KEY, **SMALL)
    x_new = np.concatenate([X_NEW, X[:20], 5.0 * X_NEW])
    error = np.abs(post.mean(x_new) - exact_posterior(KERNEL, NOISE, X, Y, x_new).mean)
    bound = post.error_bound(x_new)
    assert bound.shape == (120,)
    assert (bound <= post.error_bound() * (1 + 1e-12)).all()
    assert (error <= bound + 1e-9).all()


def test_error_bound_of_an_exact_solution_is_tiny():
    assert MODEL.condition(X, Y, num_samples=0).error_bound() < 1e-9


def test_report_says_what_was_done_and_how_good_it_is():
    text = MODEL.condition(X, Y, solver=SDD, key=KEY, **SMALL).report()
    for part in ("200 points", "converged", "4 function samples", "near field", "Matern32", "passes", "within"):
        assert part in text


def test_report_names_the_remedy_when_not_converged(stopped_early):
    text = stopped_early.report()
    assert "200 points" in text
    assert f"{stopped_early.solution.residual_upper.max():.2g}" in text
    assert "more time" in text


def test_divergence_warns_and_reports_the_remedy_and_predictions_stay_finite():
    solver = dg.SDD(step_size=100.0, batch_size=32)
    with pytest.warns(RuntimeWarning, match="Pass step_size='auto'"):
        post = MODEL.condition(X, Y, solver=solver, key=KEY, **SMALL)
    assert "step_size='auto'" in post.report()
    assert np.isfinite(post.mean(X_NEW)).all() and np.isfinite(post.std(X_NEW)).all()


def test_the_same_key_gives_the_same_posterior():
    first, again = (MODEL.condition(X, Y, solver=SDD, key=KEY, **SMALL).samples(X_NEW) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_sdd_agrees_with_cholesky():
    exact, iterative = (MODEL.condition(X, Y, solver=s, key=KEY, **SMALL) for s in (dg.Cholesky(), SDD))
    assert relative(iterative.mean(X_NEW) - exact.mean(X_NEW), exact.mean(X_NEW)) < 0.01
    assert relative(iterative.samples(X_NEW) - exact.samples(X_NEW), exact.samples(X_NEW)) < 0.01


@pytest.mark.parametrize("convert", [list, jnp.asarray, np.asarray, lambda a: a.astype(np.float32)])
def test_any_kind_of_array_is_understood(convert):
    post = MODEL.condition(convert(X), convert(Y), num_samples=0)
    expected = exact_posterior(KERNEL, NOISE, X, Y, X_NEW).mean
    np.testing.assert_allclose(post.mean(convert(X_NEW)), expected, atol=1e-4)


def test_float64_inputs_that_float32_cannot_hold_are_warned_about():
    x = X.copy()
    x[:, 1] += 1e8
    with pytest.warns(RuntimeWarning, match=r"Column\(s\) \[1\] of x vary too little"):
        MODEL.condition(x, Y, num_samples=0, dtype=np.float32)


def test_a_constant_column_is_no_reason_to_warn(recwarn):
    x = X.copy()
    x[:, 1] = 0.1
    MODEL.condition(x, Y, num_samples=0, dtype=np.float32)
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_a_model_and_what_comes_of_it_say_what_they_are():
    model = dg.GaussianProcess(2.0 * dg.Matern32([0.5, 3.0]), noise=0.1, mean=1.5)
    assert repr(model) == "GaussianProcess(2 * Matern32(lengthscale=[0.5, 3], variance=1), noise=0.1, mean=1.5)"
    seen = []
    jax.jit(lambda model: seen.append(repr(model)))(model)
    assert seen == ["GaussianProcess(traced * Matern32(lengthscale=traced, variance=traced), traced)"]
    x = np.random.default_rng(0).normal(size=(20, 2))
    post = model.condition(x, x[:, 0], num_samples=3, num_features=32, key=jax.random.key(0))
    assert repr(post.samples) == "SamplePaths(3 functions of 2 inputs)"
    sampler = dg.ThompsonSampler([(0, 1)], key=jax.random.key(0), maximise=False)
    sampler.ask(2)
    assert repr(sampler) == "ThompsonSampler(1 inputs, minimise: 0 results, 2 points pending)"


def test_the_time_limit_counts_what_drawing_functions_takes(monkeypatch):
    limits, solve, draw = [], fields.solve_run, fields.draw_targets
    monkeypatch.setattr(fields, "solve_run", lambda *a: limits.append(a[-1].deadline) or solve(*a))
    monkeypatch.setattr(fields, "draw_targets", lambda *a: time.sleep(0.2) or draw(*a))
    for max_seconds in (100.0, 0.1):
        MODEL.condition(X, Y, key=KEY, max_seconds=max_seconds, **SMALL)
    assert 0.0 < limits[0].left < 99.8 and limits[1].is_over()
