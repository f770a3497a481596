"""Calibrated quantiles: bands that contain what they promise, whatever the shape of the noise."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

import dualgp as dg
from dualgp.posterior.calibration import FEWEST_SCORES, GAUSSIAN, calibrate

KEY = jax.random.key(0)
BANDS = (0.5, 0.8, 0.9, 0.98)


def wave(n, noise, seed=0):
    """A smooth function of two inputs with noise drawn by `noise(rng, n)`, and as many new rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, (n + 2000, 2))
    y = np.sin(2.0 * x[:, 0]) * np.cos(x[:, 1]) + noise(rng, len(x))
    return x[:n], y[:n], x[n:], y[n:]


def heavy(rng, n):
    return 0.2 * rng.standard_t(3, n)


def light(rng, n):
    return rng.uniform(-0.5, 0.5, n)


def covered(posterior, x, y, band, **settings):
    low, high = posterior.quantile(x, [0.5 - 0.5 * band, 0.5 + 0.5 * band], **settings).T
    return np.mean((y >= low) & (y <= high))


MODES = {
    "exact": {"solver": dg.Cholesky()},
    "all rows": {"solver": dg.BlockDescent()},
    "a subset": {"num_far": 500},
    "neighbours alone": {"num_far": 0, "neighbours": 32, "num_samples": 0},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noise", [heavy, light])
def test_bands_cover_what_they_promise_where_noise_is_not_gaussian(mode, noise):
    x, y, x_new, y_new = wave(1500, noise)
    # Misspecified on purpose: the variance of the noise is wrong by a factor of two or more, besides its shape.
    posterior = dg.GaussianProcess(dg.Matern32(1.0), 0.06).condition(x, y, key=KEY, **MODES[mode])
    for band in BANDS:
        sampling = np.sqrt(band * (1 - band) * (1 / 1500 + 1 / 2000))
        assert abs(covered(posterior, x_new, y_new, band) - band) < 4 * sampling + 0.002
    gaussian = [abs(covered(posterior, x_new, y_new, band, calibrated=False) - band) for band in BANDS]
    assert max(gaussian) > 0.03


def test_bands_are_narrower_than_gaussian_ones_where_tails_are_light():
    x, y, x_new, _ = wave(1000, light)
    posterior = dg.GaussianProcess(dg.Matern32(1.0), 1 / 12).condition(x, y, num_samples=0)
    widths = [np.diff(posterior.quantile(x_new, [0.01, 0.99], calibrated=c)) for c in (True, False)]
    assert np.mean(widths[0]) < 0.85 * np.mean(widths[1])


def test_quantiles_rise_with_the_probability_far_into_the_tails():
    scores = calibrate(np.random.default_rng(0).standard_t(2, 500) + 0.3)
    p = np.concatenate(
        [10.0 ** -np.arange(12.0, 1.0, -0.5), np.linspace(0.05, 0.95, 50), 1 - 10.0 ** -np.arange(2, 12)]
    )
    assert np.all(np.diff(scores(p)) > 0)
    np.testing.assert_allclose(scores.cdf(scores(p)), p, rtol=1e-4)


def test_tails_beyond_the_last_score_are_gaussian_through_it_and_the_median():
    z = np.random.default_rng(0).normal(1.0, 3.0, 999)
    found, last, beyond = calibrate(z), stats.norm.ppf(0.999), stats.norm.ppf(1 - 1e-7)
    np.testing.assert_allclose(found([0.5, 0.999]), [np.median(z), z.max()], atol=1e-9)
    expected = np.median(z) + (z.max() - np.median(z)) * beyond / last
    np.testing.assert_allclose(found([1 - 1e-7]), [expected], rtol=1e-6)


def test_the_share_of_new_scores_below_a_quantile_is_its_probability_on_average():
    rng, p = np.random.default_rng(0), np.array([0.02, 0.3, 0.95])
    found = [stats.expon.cdf(calibrate(rng.exponential(size=200))(p)) for _ in range(2000)]
    np.testing.assert_allclose(np.mean(found, axis=0), p, atol=4 * 0.016 / np.sqrt(2000))


@pytest.mark.parametrize("z", [np.arange(FEWEST_SCORES - 1.0), np.zeros(500), np.full(500, np.nan)])
def test_few_or_equal_scores_leave_the_gaussian(z):
    found = calibrate(z)
    assert found is GAUSSIAN
    np.testing.assert_allclose(found([0.05, 0.5, 0.999]), stats.norm.ppf([0.05, 0.5, 0.999]), atol=1e-12)


def test_scores_of_an_exact_posterior_are_those_of_refits_without_the_row():
    x, y, _, _ = wave(120, heavy)
    model = dg.GaussianProcess(dg.Matern52(0.8), 0.1)
    z = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        mean, std = model.condition(x[rest], y[rest], num_samples=0).predict(x[i : i + 1], noise=True)
        z.append((y[i] - mean[0]) / std[0])
    p = [0.02, 0.1, 0.5, 0.9, 0.98]
    np.testing.assert_allclose(
        model.condition(x, y, num_samples=0).calibration(p), calibrate(np.array(z))(p), atol=1e-7
    )


def test_quantiles_are_mean_plus_std_times_those_of_scores_also_inside_jit():
    x, y, x_new, _ = wave(600, heavy)
    posterior = dg.GaussianProcess(dg.Matern32(1.0), 0.1).condition(x, y, key=KEY, solver=dg.BlockDescent())
    mean, std = posterior.predict(x_new, noise=True)
    expected = mean[:, None] + std[:, None] * posterior.calibration([0.1, 0.7])
    np.testing.assert_allclose(posterior.quantile(x_new, [0.1, 0.7]), expected, rtol=1e-6)
    fresh = dg.GaussianProcess(dg.Matern32(1.0), 0.1).condition(x, y, key=KEY, solver=dg.BlockDescent())
    traced = jax.jit(lambda x: fresh.quantile(x, [0.1, 0.7]))(x_new[:5].astype(np.float32))
    np.testing.assert_allclose(traced, expected[:5], atol=2e-2)


def test_quantiles_of_the_function_are_gaussian():
    x, y, x_new, _ = wave(600, heavy)
    posterior = dg.GaussianProcess(dg.Matern32(1.0), 0.1).condition(x, y, num_samples=0)
    mean, std = posterior.predict(x_new)
    expected = mean[:, None] + std[:, None] * stats.norm.ppf([0.1, 0.9])
    np.testing.assert_allclose(posterior.quantile(x_new, [0.1, 0.9], noise=False), expected)


@pytest.mark.parametrize("p", [0.0, [0.5, 1.0], [[0.5]], [np.nan]])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="probabilities between 0 and 1"):
        GAUSSIAN(p)


def test_more_rows_in_the_near_field_have_scores_of_their_own():
    x, y, x_new, y_new = wave(1500, heavy)
    posterior = dg.GaussianProcess(dg.Matern32(1.0), 0.06).condition(x, y, key=KEY, num_far=0, neighbours=32)
    before = replace(posterior, scored=posterior.calibration)
    after = before.update(x_new, y_new + 5.0 * heavy(np.random.default_rng(1), len(y_new)), key=KEY)
    assert after.quantile(x_new, [0.95]).mean() > before.quantile(x_new, [0.95]).mean() + 0.1


def test_equal_inputs_do_not_stand_for_single_observations():
    x, y, _, _ = wave(600, heavy)
    far, rng = x[:200] + 10.0, np.random.default_rng(1)  # pairs of rows whose means are no single observations
    pairs = 50.0 * rng.normal(size=400)
    model = dg.GaussianProcess(dg.Matern32(1.0), 0.1)
    merged = model.condition(np.concatenate([x, far, far]), np.concatenate([y, pairs]), num_samples=0)
    assert np.abs(merged.calibration([0.05, 0.95])).max() < 4.0


def test_outputs_share_their_scores():
    x, y, x_new, _ = wave(400, heavy)
    posterior = dg.GaussianProcess(dg.Matern32(1.0), 0.1).condition(x, np.stack([y, -y], axis=1), num_samples=0)
    found = posterior.quantile(x_new[:7], [0.1, 0.5, 0.9])
    assert found.shape == (7, 2, 3)
    np.testing.assert_allclose(found[:, 0], -found[:, 1, ::-1], atol=1e-9)
