import jax
import jax.numpy as jnp
import numpy as np
import pytest

import descent as parts
import dualgp as dg
from cases import NOISE, data, relative, shifted_gram

STEPS = 400


def problem():
    x, y = data(200)
    return dg.KernelOperator(dg.Matern32(1.0), x, NOISE), y, np.linalg.solve(shifted_gram(dg.Matern32(1.0), x), y)


def error(estimate, update, average, step_size, num_steps=STEPS):
    operator, y, exact = problem()
    solver = parts.Descent(estimate, update, average, step_size=step_size, num_steps=num_steps, tol=0.0)
    return relative(dg.solve(operator, y, solver, key=jax.random.key(0)).weights - exact, exact)


def test_sdd_is_the_combination_that_the_paper_chose():
    operator, y, _ = problem()
    sdd = dg.SDD(step_size=2.0, batch_size=32, num_steps=STEPS, averaging=0.05, tol=0.0)
    same = parts.Descent(
        parts.Coordinates(32), parts.Nesterov(0.9), parts.Geometric(0.05), step_size=2.0, num_steps=STEPS, tol=0.0
    )
    weights = [dg.solve(operator, y, solver, key=jax.random.key(1)).weights for solver in (sdd, same)]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-9, atol=1e-12)


def test_the_dual_gradient_converges_where_the_primal_one_has_hardly_begun():
    # The largest stable step of the primal gradient is smaller by the largest eigenvalue of K.
    largest = np.linalg.eigvalsh(shifted_gram(dg.Matern32(1.0), data(200)[0])).max()
    dual = error(parts.FullDual(), parts.Plain(), parts.Last(), step_size=200 / largest)
    primal = error(parts.FullPrimal(), parts.Plain(), parts.Last(), step_size=200 / largest**2)
    assert dual < 0.5 * primal


def test_noise_of_coordinates_vanishes_and_that_of_features_and_of_the_trap_does_not():
    coordinates, features, trap = (
        error(estimate, parts.Nesterov(0.9), parts.Last(), step_size=1.0, num_steps=2000)
        for estimate in (parts.Coordinates(32), parts.RandomFeatures(100), parts.Trap(32))
    )
    assert coordinates < 1e-3 < 0.05 < min(features, trap)


def test_momentum_is_faster_than_none():
    plain, nesterov = (
        error(parts.Coordinates(32), update, parts.Last(), step_size=1.0)
        for update in (parts.Plain(), parts.Nesterov(0.9))
    )
    assert nesterov < 0.5 * plain


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adam"])
def test_adaptive_optimisers_descend(name):
    step_size = {"adagrad": 200.0, "rmsprop": 4.0, "adam": 4.0}[name]
    assert error(parts.Coordinates(64), parts.Adaptive(name), parts.Geometric(0.05), step_size, 2000) < 0.3


def test_averages_are_what_they_say():
    iterates = np.random.default_rng(0).normal(size=(10, 4, 1))
    arithmetic, geometric = np.zeros((4, 1)), np.zeros((4, 1))
    for step, alpha in enumerate(iterates, start=1):
        arithmetic = np.asarray(parts.Arithmetic(0.7)(arithmetic, alpha.astype(np.float32), jnp.int32(step), 10))
        geometric = np.asarray(parts.Geometric(0.25)(geometric, alpha, jnp.int32(step), 10))
    np.testing.assert_allclose(arithmetic, iterates[7:].mean(axis=0), rtol=1e-5)
    weights = 0.25 * 0.75 ** np.arange(9, -1, -1)
    np.testing.assert_allclose(geometric, np.einsum("t,tij->ij", weights, iterates), rtol=1e-6)


def test_unknown_optimisers_are_refused():
    with pytest.raises(ValueError, match="no optimiser 'adamw' here"):
        parts.Adaptive("adamw")
