"""Outliers: a robust fit is close to that of clean data, and leaves clean data as they are."""

import jax
import numpy as np
import pytest

import dualgp as dg
from dualgp.learning.robust import SOFT, Weighing, find_outliers, weigh

KERNEL = dg.Matern32([1.0, 1.0])


def truth(x):
    return np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


def made_up(n=300, share=0.1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    clean = truth(x) + 0.1 * rng.normal(size=n)
    bad = rng.permutation(n)[: round(share * n)]
    dirty = clean.copy()
    dirty[bad] += rng.choice([-1, 1], len(bad)) * rng.uniform(3, 10, len(bad))
    return x, clean, dirty, bad


def error(fitted):
    x = made_up(seed=1)[0]
    return dg.metrics.rmse(truth(x), fitted.predict(x))


@pytest.fixture(scope="module")
def plain():
    x, clean, _, _ = made_up()
    return dg.GPRegressor(KERNEL, random_state=0).fit(x, clean)


@pytest.fixture(scope="module")
def robust():
    x, _, dirty, _ = made_up()
    return dg.GPRegressor(KERNEL, robust=True, random_state=0).fit(x, dirty)


def test_outliers_hardly_matter(plain, robust):
    x, _, dirty, _ = made_up()
    assert error(robust) < error(plain) + 0.01 < error(dg.GPRegressor(KERNEL, random_state=0).fit(x, dirty)) / 3
    assert 0.7 < robust.noise_ / plain.noise_ < 1.4  # of ordinary rows


def test_the_report_says_how_many_rows_lost_their_weight(robust):
    assert "30 rows (10 %) are so far from what others say that they lost most of their weight." in robust.report()


def test_clean_data_stay_what_they_are(plain):
    x, clean, _, _ = made_up()
    fitted = dg.GPRegressor(KERNEL, robust=True, random_state=0).fit(x, clean)
    assert abs(error(fitted) - error(plain)) < 0.005
    np.testing.assert_allclose(fitted.predict(x), plain.predict(x), atol=0.05)


def test_however_far_away_outliers_are(robust):
    x, _, dirty, bad = made_up()
    dirty[bad] *= 1e6
    assert error(dg.GPRegressor(KERNEL, robust=True, random_state=0).fit(x, dirty)) < 1.1 * error(robust)


def test_variances_and_targets_are_those_of_the_weight_in_the_formula():
    difference, spread, noise = np.array([-3.0, 0.0, 0.5, 20.0]), np.array([0.5, 1.0, 0.5, 1.0]), 0.04
    weighing, log_weight = (
        Weighing(difference, spread),
        lambda r: np.log(noise / (noise + spread**2 * (r / spread / SOFT) ** 4)),
    )
    np.testing.assert_allclose(weighing.variances(noise), noise / np.exp(log_weight(difference)))
    step = 1e-6
    slope = (log_weight(difference + step) - log_weight(difference - step)) / (2 * step)
    np.testing.assert_allclose(weighing.shift(noise), -noise * slope, atol=1e-8)


def test_rows_are_compared_with_what_the_others_say():
    x, clean, _, _ = made_up(60)
    model = dg.GaussianProcess(dg.Matern32(1.0), 0.01)
    clean[7] += 5.0
    found = weigh(model, x, clean, np.full(60, 0.01))
    others = np.arange(60) != 7
    mean, std = model.condition(x[others], clean[others], num_samples=0).predict(x[7:8], noise=True)
    np.testing.assert_allclose(found.difference[7], clean[7] - mean[0], rtol=1e-6)
    np.testing.assert_allclose(found.spread[7], std[0], rtol=1e-6)
    assert not found.ordinary[7]


def test_learn_returns_what_to_condition_on():
    x, _, dirty, bad = made_up()
    model = dg.GaussianProcess(KERNEL, 0.1)
    learned = dg.learn(model, x, dirty, robust=True, key=jax.random.key(0))
    posterior = learned.model.condition(x, learned.targets, noise=learned.noise, num_samples=0)
    assert dg.metrics.rmse(truth(x), posterior.mean(x)) < 0.07
    assert np.median(learned.noise[bad]) > 100 * np.median(learned.noise)


def test_many_rows_are_compared_without_a_key(monkeypatch):
    monkeypatch.setattr("dualgp.solvers.auto.SOLVE_EXACTLY_UP_TO", 100)  # beyond, a fit keeps rows aside at random
    x, _, dirty, bad = made_up()
    found = find_outliers(dg.GaussianProcess(KERNEL, 0.01), x, dirty, np.full(300, 0.01))
    assert not found.ordinary[bad].any() and found.ordinary.sum() == 270


def test_given_parameters_are_robust_too():
    x, _, dirty, _ = made_up()
    fitted = dg.GPRegressor(dg.Matern32(1.0), noise=0.01, learn=False, robust=True, random_state=0).fit(x, dirty)
    assert error(fitted) < 0.1 and fitted.noise_ == pytest.approx(0.01)


def test_new_outliers_are_met_in_the_same_way(robust):
    x, _, dirty, _ = made_up()
    fitted = dg.GPRegressor(KERNEL, robust=True, random_state=0).fit(x[:200], dirty[:200])
    before = error(fitted)
    assert error(fitted.update(x[200:], dirty[200:])) < before


def test_weights_and_files_go_with_it(tmp_path):
    x, _, dirty, _ = made_up(150)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 150)
    fitted = dg.GPRegressor(KERNEL, robust=True, random_state=0).fit(x, dirty, sample_weight=weights)
    assert error(fitted) < 0.12
    dg.save(fitted, tmp_path / "model.dgp")
    np.testing.assert_array_equal(dg.load(tmp_path / "model.dgp").predict(x), fitted.predict(x))


@pytest.mark.parametrize(("settings", "y"), [({}, 2), ({"noise": "input-dependent"}, 1)])
def test_what_does_not_go_together_is_refused(settings, y):
    x, clean, dirty, _ = made_up(50)
    with pytest.raises(ValueError, match="robust=True is for one output"):
        dg.GPRegressor(robust=True, **settings).fit(x, clean if y == 1 else np.stack([clean, dirty], axis=1))
    with pytest.raises(ValueError, match="factor"):
        dg.learn(dg.GaussianProcess(dg.RBF(1.0), 0.1), x, clean, noise=np.ones(50), robust=True)
