"""Gradient descent by eigenvectors is gradient descent step by step."""

import jax
import numpy as np
import pytest

import descent
import dualgp as dg
import full_batch
from datasets.uci import Dataset
from dualgp._arrays import wide


@pytest.mark.parametrize(("objective", "step_size"), [("dual", 5.0), ("primal", 0.05)])
def test_takes_the_same_steps(objective, step_size):
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(80, 2)), rng.normal(size=(20, 2))
    data = Dataset(x, np.sin(x[:, 0]), x_test, np.sin(x_test[:, 0]))
    model = dg.GaussianProcess(dg.Matern32(1.0), noise=0.1)
    estimate = {"dual": descent.FullDual(), "primal": descent.FullPrimal()}[objective]
    solver = descent.Descent(estimate, descent.Plain(), descent.Last(), step_size=step_size, num_steps=37, tol=0.0)
    operator = dg.KernelOperator(model.kernel, x, model.noise)
    weights = dg.solve(operator, data.y, solver, key=jax.random.key(0)).weights
    error = weights - np.linalg.solve(operator.dense(), data.y)
    with wide():
        product = np.asarray(model.kernel(x, x)) @ error
        rmse = dg.metrics.rmse(data.y_test, np.asarray(model.kernel(x_test, x)) @ weights)

    found = full_batch.progress(full_batch.spectrum(model, data), 0.1, data.y_test, objective, step_size, 37)
    np.testing.assert_allclose(found, (error @ product, product @ product, rmse), rtol=1e-8)


def test_says_that_it_diverged_by_growing():
    rng = np.random.default_rng(0)
    data = Dataset(*(rng.normal(size=shape) for shape in ((30, 2), (30,), (5, 2), (5,))))
    spectrum = full_batch.spectrum(dg.GaussianProcess(dg.Matern32(1.0), noise=0.1), data)
    assert full_batch.progress(spectrum, 0.1, data.y_test, "dual", 500.0, 9)[0] > 1e3
    assert full_batch.progress(spectrum, 0.1, data.y_test, "dual", 500.0, 10**6) == (np.inf, np.inf, np.inf)
