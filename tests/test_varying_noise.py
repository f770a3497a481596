"""Noise that depends on the inputs."""

import jax
import numpy as np
import pytest

import dualgp as dg
from dualgp._npz import NotReadable, read, write
from dualgp.learning.varying import _expected_log, _variance_of_log, noise_field

KERNEL = dg.RBF([0.3, 0.3])


def made_up(n=1000, seed=0):
    """The standard deviation of the noise grows tenfold along the second input, which says nothing about the mean."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (n, 2))
    std = 0.05 * 10.0 ** x[:, 1]
    return x, 7.0 + 3.0 * (np.sin(6 * x[:, 0]) + std * rng.normal(size=n)), 3.0 * std


@pytest.fixture(scope="module")
def fitted():
    x, y, _ = made_up()
    return dg.GPRegressor(KERNEL, noise="input-dependent", random_state=0).fit(x, y)


def test_bands_hold_in_each_fifth_of_the_noise(fitted):
    x, y, std = made_up(4000, seed=1)
    mean, found = fitted.predict(x, return_std=True)
    inside = np.abs(y - mean) < 1.645 * found
    for rows in np.array_split(np.argsort(found), 5):
        assert 0.84 < inside[rows].mean() < 0.96
    assert np.corrcoef(np.log(found), np.log(std))[0, 1] > 0.95
    x_fit, y_fit, _ = made_up()
    one = dg.GPRegressor(KERNEL, random_state=0).fit(x_fit, y_fit)
    better = dg.metrics.nll(y, mean, found)
    assert better < dg.metrics.nll(y, *one.predict(x, return_std=True)) - 0.15


def test_quantiles_and_draws_have_it_too(fitted):
    x = np.array([[0.5, 0.05], [0.5, 0.95]])
    mean, std = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(
        fitted.predict(x, quantiles=[0.95], calibrated=False)[:, 0], mean + 1.6448536 * std, rtol=1e-6
    )
    draws = fitted.sample_y(x, 20_000)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.05)
    covariance = fitted.predict(x, return_cov=True)[1]
    np.testing.assert_allclose(covariance.diagonal(), std**2, rtol=1e-6)
    function = fitted.predict(x, return_std=True, noise=False)[1]
    assert np.all(function < 0.5 * std)


def test_noise_is_the_geometric_mean(fitted):
    _, _, std = made_up()
    assert np.isclose(np.sqrt(fitted.noise_), np.exp(np.mean(np.log(std))), rtol=0.15)


def test_files_keep_it_and_are_checked(fitted, tmp_path):
    x, path = made_up(50, seed=1)[0], tmp_path / "model.dgp"
    dg.save(fitted, path)
    for a, b in zip(fitted.predict(x, return_std=True), dg.load(path).predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    header, arrays = read(path)
    header["content"]["fields"]["noise_field_"] = header["content"]["fields"]["units_"]
    write(path, header, arrays)
    with pytest.raises(NotReadable, match="noise"):
        dg.load(path)


def test_more_rows_bring_their_own_noise(fitted):
    x, y, _ = made_up()
    first = dg.GPRegressor(KERNEL, noise="input-dependent", random_state=0).fit(x[:800], y[:800])
    field, model, units = first.noise_field_, first.posterior_.model, first.units_
    first.update(x[800:], y[800:])
    inner = units.inputs(x)
    noise = float(model.noise) * np.exp(field.mean(inner))
    at_once = model.condition(inner, units.targets(inner, y), noise=noise, num_samples=0)
    np.testing.assert_allclose(first.posterior_.mean(inner), at_once.mean(inner), atol=1e-6)


def test_given_kernels_several_outputs_and_weights_go_with_it():
    x, y, std = made_up(400)
    both = np.stack([y, 5.0 - y], axis=1)
    settings = {"noise": "input-dependent", "random_state": 0, "learn": False}
    fitted = dg.GPRegressor(dg.Matern32(0.5, 9.0), **settings).fit(x, both, sample_weight=np.full(400, 2.0))
    found = fitted.predict(x, return_std=True)[1]
    z = (both - fitted.predict(x)) / found
    assert np.isclose(np.median(np.abs(z)), 0.67 / np.sqrt(2.0), atol=0.12)  # std is of a new observation of weight 1
    assert found.shape == (400, 2) and np.corrcoef(np.log(found[:, 0]), np.log(std))[0, 1] > 0.8


def test_the_logarithm_of_squares_has_the_moments_that_are_taken_out():
    squares = np.random.default_rng(0).standard_normal((400_000, 3)) ** 2
    for k in (1, 3):
        logs = np.log(squares[:, :k].mean(axis=1))
        assert np.isclose(logs.mean(), _expected_log(k), atol=0.01)
        assert np.isclose(logs.var(), _variance_of_log(k), rtol=0.02)
    assert np.isclose(_expected_log(1), -1.27, atol=0.01)


@pytest.mark.parametrize("are_many", [False, True])
def test_constant_noise_is_found_to_be_constant(are_many, monkeypatch):
    if are_many:  # a fit of many rows keeps some aside at random
        monkeypatch.setattr("dualgp.solvers.auto.SOLVE_EXACTLY_UP_TO", 100)
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (600, 1))
    y = np.sin(6 * x[:, 0]) + 0.1 * rng.normal(size=600)
    model = dg.GaussianProcess(dg.RBF(0.3), 0.01)
    field, noise = noise_field(model, x, y, np.ones(600), dg.Matern32([0.3]), jax.random.key(0))
    assert np.std(field.mean(x)) < 0.25 and np.isclose(noise, 0.01, rtol=0.25)


def test_other_words_are_refused():
    x, y, _ = made_up(50)
    with pytest.raises(TypeError, match="input-dependent"):
        dg.GPRegressor(noise="constant").fit(x, y)
