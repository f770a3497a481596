"""Stochastic dual descent is Algorithm 1, and its automatic settings are sound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, shifted_gram
from dualgp._arrays import wide
from dualgp.solvers import sdd
from dualgp.solvers.spectrum import Spectrum, estimate_spectrum

KERNEL, KEY = KERNELS["Matern32"], jax.random.key(0)
FIXED = dg.SDD(step_size=1.5, batch_size=32, num_steps=300, averaging=0.1, tol=0.0)


def problem(n=120):
    x, y = data(n)
    return dg.KernelOperator(KERNEL, x, NOISE), y


def largest_step(operator, batch_size):
    with wide():
        return sdd.stable_step_size(estimate_spectrum(operator, KEY), batch_size, momentum=0.9)


def algorithm_1(A, b, batches, beta, rho, r):
    """The paper's listing, line by line: a gradient that is zero outside the batch, one term per drawn index."""
    n = len(b)
    alpha, v, average = np.zeros_like(b), np.zeros_like(b), np.zeros_like(b)
    for batch in batches:
        look_ahead = alpha + rho * v
        gradient = np.zeros_like(b)
        for i in batch:
            gradient[i] += n / len(batch) * (A[i] @ look_ahead - b[i])
        v = rho * v - beta * gradient
        alpha = alpha + v
        average = r * alpha + (1 - r) * average
    return alpha, v, average


def test_step_equals_a_literal_transcription_of_algorithm_1(monkeypatch):
    operator, y = problem(50)
    batches = np.random.default_rng(1).integers(0, 50, size=(20, 12)).astype(np.int32)
    batches[:, 5] = batches[:, 0]  # an index that comes up twice counts twice
    solver = dg.SDD(step_size=10.0, batch_size=12, momentum=0.85, averaging=0.07)
    b = np.stack([y, np.cos(y)], axis=1)
    with wide():
        prepared, _ = solver.prepare(operator, jnp.asarray(b), KEY)
        state = prepared.init(operator, jnp.asarray(b), jnp.zeros_like(b))
        for batch in batches:
            monkeypatch.setattr(jax.random, "randint", lambda *_, batch=batch: jnp.asarray(batch))
            state, _ = prepared.step(operator, jnp.asarray(b), state, KEY)
    expected = algorithm_1(shifted_gram(KERNEL, data(50)[0]), b, batches, beta=10.0 / 50, rho=0.85, r=0.07)
    for ours, theirs in zip(state, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


def test_the_free_residual_estimate_is_unbiased():
    operator, y = problem(80)
    with wide():
        b = jnp.asarray(y)[:, None]
        prepared, _ = FIXED.prepare(operator, b, KEY)
        state = prepared.init(operator, b, 0.1 * b)
        step = jax.vmap(lambda key: prepared.step(operator, b, state, key)[1])
        squared = np.asarray(step(jax.random.split(KEY, 2000)))
    exact = np.sum((y - operator.dense() @ (0.1 * y)) ** 2)
    assert abs(squared.mean() - exact) < 4 * squared.std() / np.sqrt(2000)


def test_columns_solved_together_equal_columns_solved_apart():
    operator, y = problem()
    b = np.stack([y, np.sin(3 * y), np.ones_like(y)], axis=1)
    together = dg.solve(operator, b, FIXED, key=KEY).weights
    apart = np.stack([dg.solve(operator, column, FIXED, key=KEY).weights for column in b.T], axis=1)
    np.testing.assert_allclose(together, apart, rtol=1e-9, atol=1e-11)


def test_the_solution_is_linear_in_b():
    operator, y = problem()
    p, q = y, np.cos(y)
    solve = lambda b: dg.solve(operator, b, FIXED, key=KEY).weights
    np.testing.assert_allclose(solve(2.0 * p - 3.0 * q), 2.0 * solve(p) - 3.0 * solve(q), rtol=1e-8, atol=1e-10)


def test_the_same_key_gives_the_same_weights_bit_for_bit():
    operator, y = problem()
    first, again, other = (dg.solve(operator, y, FIXED, key=jax.random.key(seed)).weights for seed in (7, 7, 8))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("averaging", [0.05, 1.0, "auto"])
def test_automatic_settings_converge(averaging):
    operator, y = problem(300)
    solution = dg.solve(operator, y, dg.SDD(tol=1e-2, averaging=averaging), key=KEY)
    assert solution.result is dg.Result.CONVERGED
    assert np.linalg.norm(y - operator.dense() @ solution.weights) <= 1e-2 * np.linalg.norm(y)
    limit = largest_step(operator, solution.solver.batch_size)
    assert solution.solver.step_size == pytest.approx(0.9 * limit, rel=0.02)


def test_step_size_limit_is_the_published_formula():
    spectrum = Spectrum(n=1000, largest=250.0, diagonal=1.3, passes=0.0)
    expected = 1 / ((1 + 2 * 0.9) / (2 + 2 * 0.9) * 0.25 + 1.3 / (2 * 512 * (1 - 0.9)))
    assert sdd.stable_step_size(spectrum, 512, 0.9) == pytest.approx(expected)
    assert sdd.critical_batch_size(spectrum, 0.9) == pytest.approx(1.3 * 3.8 / (2.8 * 2 * 0.1 * 0.25))


@pytest.mark.parametrize(("share", "result"), [(0.9, dg.Result.BUDGET_REACHED), (2.5, dg.Result.DIVERGED)])
def test_steps_below_the_limit_are_stable_and_far_above_it_diverge(share, result):
    operator, y = problem(300)
    limit = largest_step(operator, 64)
    solver = dg.SDD(step_size=share * limit, batch_size=64, num_steps=1500, tol=0.0)
    assert dg.solve(operator, y, solver, key=KEY).result is result


def test_too_large_automatic_steps_are_halved_until_they_converge(monkeypatch):
    monkeypatch.setattr(sdd, "SAFETY", 15.0)
    operator, y = problem(300)
    solution = dg.solve(operator, y, dg.SDD(tol=1e-2, averaging=0.05), key=KEY)
    limit = largest_step(operator, solution.solver.batch_size)
    assert solution.result is dg.Result.CONVERGED
    assert solution.solver.step_size <= 15.0 * limit / 4
    assert "more carefully" in solution.message


def test_too_large_fixed_steps_are_reported_with_a_remedy():
    operator, y = problem(300)
    solution = dg.solve(operator, y, dg.SDD(step_size=30.0, batch_size=64, num_steps=2000), key=KEY)
    assert solution.result is dg.Result.DIVERGED
    assert "step_size=30 is too large" in solution.message
    assert "Pass step_size='auto'" in solution.message
    assert np.isfinite(solution.weights).all() and solution.residual.max() <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"step_size": float("nan")}, "step_size must be positive"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"num_steps": 0}, "num_steps must be a whole number"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"averaging": 0.0}, "averaging must be in"),
        ({"tol": -1.0}, "tol must be at least 0"),
    ],
)
def test_impossible_settings_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        dg.SDD(**settings)
