"""Metrics against hand-computed values, scikit-learn and numerical integration."""

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.metrics import r2_score, root_mean_squared_error

from dualgp import metrics

RNG = np.random.default_rng(0)
Y, MEAN = RNG.normal(size=50), RNG.normal(size=50)
STD = RNG.uniform(0.3, 2.0, size=50)


def test_metrics_by_hand():
    y, mean, std = [1.0, 3.0], [2.0, 1.0], [1.0, 2.0]
    assert metrics.rmse(y, mean) == pytest.approx(np.sqrt(2.5))
    assert metrics.r2(y, mean) == pytest.approx(1 - 5 / 2)
    assert metrics.nll(y, mean, std) == pytest.approx((1 + np.log(2)) / 2 + np.log(2 * np.pi) / 2)
    assert metrics.coverage(y, mean, std, level=0.5) == 0.0
    assert metrics.coverage(y, mean, [1.0, 4.0], level=0.5) == 0.5
    assert metrics.coverage(y, mean, std) == 1.0


def test_rmse_and_r2_equal_scikit_learns():
    assert metrics.rmse(Y, MEAN) == pytest.approx(root_mean_squared_error(Y, MEAN))
    assert metrics.r2(Y, MEAN) == pytest.approx(r2_score(Y, MEAN))


def test_r2_charges_for_a_constant_offset():
    assert metrics.r2(Y, Y + 1.0) < 0.5


def test_nll_equals_scipys():
    assert metrics.nll(Y, MEAN, STD) == pytest.approx(-stats.norm.logpdf(Y, MEAN, STD).mean())


def test_crps_equals_its_integral():
    def score(y, mean, std):
        below = integrate.quad(lambda t: stats.norm.cdf(t, mean, std) ** 2, -np.inf, y)[0]
        above = integrate.quad(lambda t: stats.norm.sf(t, mean, std) ** 2, y, np.inf)[0]
        return below + above

    expected = np.mean([score(*case) for case in zip(Y[:8], MEAN[:8], STD[:8], strict=True)])
    assert metrics.crps(Y[:8], MEAN[:8], STD[:8]) == pytest.approx(expected, abs=1e-7)


def test_calibrated_predictions_are_covered_as_often_as_they_claim():
    noise = np.random.default_rng(1).normal(size=20_000)
    assert metrics.coverage(noise, np.zeros(20_000), 1.0) == pytest.approx(0.95, abs=0.006)
    assert metrics.coverage(noise, np.zeros(20_000), 1.0, level=0.5) == pytest.approx(0.5, abs=0.015)


@pytest.mark.parametrize("metric", [metrics.nll, metrics.coverage, metrics.crps])
def test_one_std_for_all_points_is_enough(metric):
    assert metric(Y, MEAN, 0.7) == pytest.approx(metric(Y, MEAN, np.full(50, 0.7)))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.rmse(Y, MEAN[:3]), "same shape"),
        (lambda: metrics.rmse(Y, MEAN[:, None]), "same shape"),
        (lambda: metrics.rmse([], []), "at least one value"),
        (lambda: metrics.rmse([1.0, np.nan], [0.0, 0.0]), "y has 1 NaN"),
        (lambda: metrics.rmse([1.0, 1.0], [0.0, np.inf]), "mean has 1 NaN or infinite"),
        (lambda: metrics.r2([2.0, 2.0], [1.0, 2.0]), "not defined for constant targets"),
        (lambda: metrics.nll(Y, MEAN, np.zeros(50)), "std must be positive"),
        (lambda: metrics.nll(Y, MEAN, np.full(50, np.nan)), "std has 50 NaN"),
        (lambda: metrics.nll(Y, MEAN, STD[:7]), "std .*shape"),
        (lambda: metrics.coverage(Y, MEAN, STD, level=95), "between 0 and 1"),
    ],
)
def test_impossible_requests_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
