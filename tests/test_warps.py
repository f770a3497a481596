"""Monotone functions of the target: there and back, densities, quantiles, and which one is chosen."""

import numpy as np
import pytest
from scipy import integrate, stats

import dualgp as dg
from dualgp.sklearn.choices import as_warp, choose_warp, noise_floor, resolution
from dualgp.sklearn.preparation import standard_model
from dualgp.sklearn.warps import Prediction, Warp, scores

RNG = np.random.default_rng(0)
POSITIVE = np.exp(RNG.normal(2.0, 0.7, 500))
WARPS = {
    "none": Warp(),
    "log": as_warp("log", POSITIVE),
    "sqrt": as_warp("sqrt", POSITIVE),
    **{f"yeo-johnson {power}": as_warp("yeo-johnson", POSITIVE, power) for power in (0.0, 0.5, 1.0, 1.5, 2.0)},
}


@pytest.mark.parametrize("name", WARPS)
def test_a_warp_is_increasing_and_comes_back(name):
    warp, y = WARPS[name], np.sort(POSITIVE)
    assert np.all(np.diff(warp(y)) > 0)
    np.testing.assert_allclose(warp.inverse(warp(y)), y, rtol=1e-9)


@pytest.mark.parametrize("name", WARPS)
def test_its_slope_is_its_derivative(name):
    warp, y, step = WARPS[name], POSITIVE[:50], 1e-5
    np.testing.assert_allclose(np.exp(warp.log_slope(y)), (warp(y + step) - warp(y - step)) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("name", WARPS)
def test_the_density_of_a_prediction_is_that_of_its_quantiles_and_moments(name):
    warp = WARPS[name]
    z = warp(POSITIVE)
    prediction = Prediction(warp, np.array([z.mean()]), np.array([0.3 * z.std()]))
    low, high = prediction.quantiles([1e-6, 1 - 1e-6])[0]
    density = lambda y: np.exp(prediction.log_density(np.array([y]))[0])
    moments = [integrate.quad(lambda y, k=k: y**k * density(y), low, high, limit=200)[0] for k in range(3)]
    assert np.isclose(moments[0], 1.0, atol=1e-4)
    assert np.isclose(prediction.mean[0], moments[1], rtol=1e-3)
    assert np.isclose(prediction.std[0], np.sqrt(moments[2] - moments[1] ** 2), rtol=1e-2)
    below = integrate.quad(density, low, prediction.quantiles([0.2])[0, 0], limit=200)[0]
    assert np.isclose(below, 0.2, atol=1e-4)


def test_the_mean_and_the_median_of_a_lognormal_are_told_apart():
    warp = as_warp("log", POSITIVE)
    prediction = Prediction(warp, np.array([0.1]), np.array([0.6]))
    truth = stats.lognorm(0.6, scale=np.exp(0.1) * warp.scale)
    assert np.isclose(prediction.median[0], truth.median()) and np.isclose(prediction.mean[0], truth.mean())
    assert np.isclose(prediction.std[0], truth.std(), rtol=1e-6)
    y = np.array([truth.median()])
    expected = 2 * np.mean([(1 - p) * max(truth.ppf(p) - y[0], 0) + p * max(y[0] - truth.ppf(p), 0) for p in LEVELS])
    assert np.isclose(prediction.crps(y)[0], expected, rtol=1e-3)


LEVELS = (np.arange(2000) + 0.5) / 2000


def test_a_wide_band_in_logarithms_has_no_astronomic_mean():
    warp = as_warp("log", POSITIVE)
    prediction = Prediction(warp, np.array([0.0]), np.array([50.0]))
    assert prediction.mean[0] < POSITIVE.max() ** 3 and np.isfinite(prediction.std[0])


def test_scores_are_those_of_the_metrics_where_nothing_is_warped():
    mean, std = RNG.normal(size=200), RNG.gamma(2.0, 1.0, 200)
    y = mean + std * RNG.normal(size=200)
    found = scores(y, Prediction(Warp(), mean, std))
    assert np.isclose(found["rmse"], dg.metrics.rmse(y, mean))
    assert np.isclose(found["nll"], dg.metrics.nll(y, mean, std))
    assert np.isclose(found["crps"], dg.metrics.crps(y, mean, std))
    assert np.isclose(found["coverage90"], dg.metrics.coverage(y, mean, std, 0.9))


def _regression(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (lambda z: np.exp(z), ("log",)),
        (lambda z: (z + 3.0) ** 2, ("sqrt",)),
        (lambda z: z, ("none",)),
        (lambda z: np.expm1(np.abs(z)) * np.sign(z) + 0.4 * np.expm1(z), ("yeo-johnson",)),
    ],
)
def test_the_function_that_made_the_data_is_found(function, kinds):
    x, z = _regression()
    y = function(z)
    warp, said = choose_warp(standard_model(x, None), x, y)
    assert warp.kind in kinds and (warp.kind in said or warp.kind == "none")


def test_a_regressor_in_logarithms_is_honest_everywhere_and_comes_back_in_units():
    x, z = _regression(600)
    x_new, z_new = _regression(500, seed=1)
    y, y_new = 1e4 * np.exp(1.5 * z), 1e4 * np.exp(1.5 * z_new)
    chosen, plain = (dg.GPRegressor(random_state=0, target_transform=kind).fit(x, y) for kind in ("auto", "none"))
    assert chosen.warp_.kind == "log"
    ours, other = (scores(y_new, fitted.distribution(x_new)) for fitted in (chosen, plain))
    assert ours["nll"] < other["nll"] - 0.5 and ours["crps"] < other["crps"]
    band = chosen.predict(x_new, quantiles=[0.05, 0.95])
    order = np.argsort(chosen.predict(x_new))
    for fifth in np.array_split(order, 5):
        assert 0.8 < np.mean((y_new[fifth] > band[fifth, 0]) & (y_new[fifth] < band[fifth, 1])) <= 1.0
    mean, std = chosen.predict(x_new, return_std=True)
    draws = chosen.sample_y(x_new[:20], 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean[:20], rtol=0.1)
    np.testing.assert_allclose(draws.std(axis=1), std[:20], rtol=0.2)
    assert np.all(chosen.sample_functions()(x_new[:20]) > 0)
    np.testing.assert_allclose(np.diag(chosen.predict(x_new[:20], return_cov=True)[1]), std[:20] ** 2)


def test_targets_outside_of_a_logarithm_are_a_sentence():
    x, z = _regression(60)
    with pytest.raises(ValueError, match="needs positive targets"):
        dg.GPRegressor(target_transform="log").fit(x, z)
    with pytest.raises(ValueError, match="target_transform must be 'auto' or one of"):
        dg.GPRegressor(target_transform="cube").fit(x, z)
    fitted = dg.GPRegressor(target_transform="log", random_state=0).fit(x, np.exp(z))
    with pytest.raises(ValueError, match="was fitted to positive targets, got -1"):
        fitted.update(x[:1], np.array([-1.0]))


@pytest.mark.parametrize(
    ("y", "step"),
    [
        (np.arange(100.0) % 7, 1.0),
        (np.round(RNG.normal(size=1000), 1), 0.1),
        (5.0 * RNG.integers(0, 20, 300) + 2.0, 5.0),
        (RNG.normal(size=1000), 0.0),
        (np.repeat(RNG.normal(size=100), 5), 0.0),
        (np.ones(10), 0.0),
    ],
)
def test_the_step_of_rounded_targets_is_found(y, step):
    assert np.isclose(resolution(y), step)
    assert np.isclose(noise_floor(Warp(), y), step**2 / 12)


def test_rounded_targets_give_the_noise_a_floor():
    x = np.linspace(0, 1, 300)[:, None]
    y = np.round(10 * x[:, 0])
    fitted = dg.GPRegressor(random_state=0, target_transform="none").fit(x, y)
    assert fitted.noise_ >= 0.999 / 12
