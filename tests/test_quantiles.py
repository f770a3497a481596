"""Calibrated quantiles of a regressor: through the trend and the transform of y, in files, tables and pictures."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dualgp as dg
from dualgp._arrays import wide
from dualgp.posterior.calibration import GAUSSIAN, Calibration, calibrate
from dualgp.sklearn.warps import Prediction, Warp
from dualgp.table.model import fit_table


def skewed(n=900, seed=0):
    """Positive targets with a trend and noise whose logarithm is uniform, so that no transform makes it Gaussian."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    return x, np.exp(1.0 + x[:, 0] + np.sin(4.0 * x[:, 1]) + rng.uniform(-0.5, 0.5, n))


@pytest.fixture(scope="module")
def fitted():
    x, y = skewed()
    return dg.GPRegressor(n_samples=0, random_state=0, target_transform="log", trend=True).fit(x[:300], y[:300])


def test_bands_of_a_regressor_cover_through_transform_and_trend(fitted):
    x, y = skewed(3300)
    for band in (0.5, 0.9, 0.98):
        low, high = fitted.predict(x[300:], quantiles=[0.5 - band / 2, 0.5 + band / 2]).T
        assert abs(np.mean((y[300:] >= low) & (y[300:] <= high)) - band) < 4 * np.sqrt(band * (1 - band) / 300)
    wide_band = fitted.predict(x, quantiles=[0.01, 0.99], calibrated=False)
    assert np.mean(np.diff(np.log(fitted.predict(x, quantiles=[0.01, 0.99])))) < 0.9 * np.mean(
        np.diff(np.log(wide_band))
    )


def test_quantiles_that_are_not_calibrated_are_those_of_the_gaussian(fitted):
    x, _ = skewed(5)
    prediction = fitted.distribution(x, calibrated=False)
    expected = prediction.warp.inverse(prediction.location + prediction.spread * stats.norm.ppf(0.9))
    np.testing.assert_allclose(fitted.predict(x, quantiles=[0.9], calibrated=False)[:, 0], expected, rtol=1e-9)
    function = fitted.distribution(x, noise=False)
    expected = function.warp.inverse(function.location + function.spread * stats.norm.ppf(0.9))
    np.testing.assert_allclose(fitted.predict(x, quantiles=[0.9], noise=False)[:, 0], expected, rtol=1e-9)


def test_mean_and_std_do_not_depend_on_the_calibration(fitted):
    x, _ = skewed(5)
    ours, theirs = fitted.distribution(x), fitted.distribution(x, calibrated=False)
    assert not ours.calibration.is_gaussian
    np.testing.assert_array_equal(ours.moments(), theirs.moments())
    np.testing.assert_array_equal(ours.median, ours.quantiles([0.5])[:, 0])


def test_the_crps_is_that_of_the_calibrated_distribution():
    z = np.random.default_rng(0).exponential(size=4000) - 1.0
    prediction = Prediction(Warp(), np.zeros(len(z)), np.ones(len(z)), calibrate(z))
    pairs = np.abs(z[:, None] - z).mean()  # CRPS = E|z - y| - E|z - z'| / 2, on average over y half of the pairs
    np.testing.assert_allclose(prediction.crps(z).mean(), 0.5 * pairs, rtol=0.01)
    assert prediction.crps(z).mean() < 0.99 * Prediction(Warp(), np.zeros(len(z)), np.ones(len(z))).crps(z).mean()


def test_a_file_brings_the_calibration_along(fitted, tmp_path):
    dg.save(fitted, tmp_path / "model.dgp")
    loaded = dg.load(tmp_path / "model.dgp")
    assert loaded.posterior_.scored is not None
    x, _ = skewed(5)
    np.testing.assert_array_equal(loaded.predict(x, quantiles=[0.05, 0.95]), fitted.predict(x, quantiles=[0.05, 0.95]))


@pytest.mark.parametrize(
    "damaged",
    [
        Calibration(np.array([-1.0, 1.0]), np.array([1.0, -1.0])),
        Calibration(np.array([0.5, 1.0]), np.array([0.5, 1.0])),
        Calibration(np.array([-1.0, 1.0]), np.array([-1.0, np.inf])),
    ],
)
def test_a_file_with_an_impossible_calibration_is_refused(damaged, tmp_path):
    with wide():
        posterior = dg.GaussianProcess(dg.RBF(), 0.1).condition(np.zeros((3, 1)), np.zeros(3), num_samples=0)
    dg.save(replace(posterior, scored=damaged), tmp_path / "damaged.dgp")
    with pytest.raises(ValueError, match="does not hold together"):
        dg.load(tmp_path / "damaged.dgp")


def test_a_check_by_fitted_rows_uses_bands_from_other_rows():
    x, y = skewed(500)
    model = fit_table({"a": x[:, 0], "b": x[:, 1], "y": y}, "y", random_state=0, n_samples=2)
    prediction, truth, _ = model.check()
    z = (prediction.warp(truth) - prediction.location) / prediction.spread
    assert len(truth) == 250
    assert not np.array_equal(prediction.calibration.values, calibrate(z).values)


def test_pictures_use_the_bands_that_they_are_given():
    rng = np.random.default_rng(0)
    z = rng.standard_t(2, 20_000)
    mean, std = np.zeros(len(z)), np.ones(len(z))
    line = dg.plots.calibration(z, mean, std, calibrated=calibrate(rng.standard_t(2, 4000))).get_lines()[-1]
    assert np.abs(line.get_ydata() - line.get_xdata()).max() < 0.04
    line = dg.plots.calibration(z, mean, std, calibrated=GAUSSIAN).get_lines()[-1]
    assert np.abs(line.get_ydata() - line.get_xdata()).max() > 0.06
    axes = dg.plots.predicted_against_observed(z, mean, std, calibrated=calibrate(z))
    assert "90 % in the 90 % bars" in axes.get_title()
