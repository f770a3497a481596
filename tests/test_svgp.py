"""The sparse baseline of the experiments against the exact Gaussian process."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import dualgp as dg
import svgp

MODEL = dg.GaussianProcess(dg.Matern32([0.7, 1.5], 1.3), noise=0.05, mean=0.4)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x, x_test = rng.uniform(-2, 2, (150, 2)), rng.uniform(-2, 2, (40, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.2 * rng.normal(size=150)
    return SimpleNamespace(x=x, y=y, x_test=x_test, y_test=np.sin(2 * x_test[:, 0]) + x_test[:, 1])


@pytest.fixture
def all_points(monkeypatch, data):
    monkeypatch.setattr(svgp, "inducing_points", lambda kernel, x, num, seed: x)


def exact(data):
    posterior = MODEL.condition(data.x, data.y, solver=dg.Cholesky(), num_samples=0)
    return posterior.mean(data.x_test), posterior.predict(data.x_test, noise=True)[1]


def test_with_every_point_inducing_it_is_exact(data, all_points):
    for found, expected in zip(svgp.predict(MODEL, data, 150), exact(data), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_its_functions_have_the_exact_moments(data, all_points):
    mean, std = exact(data)
    std = np.sqrt(std**2 - 0.05)
    functions = svgp.sample_paths(MODEL, data.x, data.y, 150, 2000, jax.random.key(0))(data.x_test)
    np.testing.assert_allclose(functions.mean(axis=0), mean, atol=5 * std.max() / 2000**0.5)
    np.testing.assert_allclose(functions.std(axis=0), std, rtol=0.1)


def test_adam_comes_near_the_optimum_for_points_that_stay(data):
    """Near, because its points move: pointwise the spread differs, on average it does not."""
    pytest.importorskip("gpytorch")
    import svgp_adam

    mean, std = svgp.predict(MODEL, data, 30)
    moved = svgp_adam.predict(MODEL, data, 30, num_steps=400)
    assert np.sqrt(np.mean((moved[0] - mean) ** 2)) < 0.1
    np.testing.assert_allclose(moved[1].mean(), std.mean(), rtol=0.1)
