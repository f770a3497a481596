"""Weights of rows: 2 counts as twice, 0 not at all."""

import jax
import numpy as np
import pandas
import pytest
import sklearn
from click.testing import CliRunner
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dualgp as dg
from dualgp.table.cli import main


def made_up(n=80, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    y = 3.0 + 2.0 * np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=n)
    return x, y, rng.integers(0, 4, n)


def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row():
    x, y, weights = made_up()
    weighted = dg.GPRegressor(random_state=0).fit(x, y, sample_weight=weights)
    repeated = dg.GPRegressor(random_state=0).fit(x.repeat(weights, axis=0), y.repeat(weights))
    for a, b in zip(weighted.predict(x, return_std=True), repeated.predict(x, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert np.isclose(weighted.noise_, repeated.noise_, rtol=1e-6)
    zeros = int(np.sum(weights == 0))
    assert f"{zeros} rows have a weight of zero" in weighted.report()
    assert "count as often as they are there" in repeated.report()


def test_weights_divide_the_noise_of_their_rows():
    x, y, _ = made_up()
    weights = np.random.default_rng(1).uniform(0.1, 5.0, len(x))
    fitted = dg.GPRegressor(dg.RBF(1.0), noise=0.09, learn=False, random_state=0).fit(x, y, sample_weight=weights)
    rbf = lambda a, b: np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(axis=2))
    matrix, cross = rbf(x, x) + np.diag(0.09 / weights), rbf(x[:7] + 0.1, x)
    mean = y.mean() + cross @ np.linalg.solve(matrix, y - y.mean())
    variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(matrix, cross.T))
    found, std = fitted.predict(x[:7] + 0.1, return_std=True)
    np.testing.assert_allclose(found, mean, atol=1e-8)
    np.testing.assert_allclose(std**2, variance + 0.09, atol=1e-8)  # of a new observation of weight 1
    assert np.isclose(fitted.noise_, 0.09)


def test_the_unit_of_weights_is_that_of_the_noise():
    x, y, _ = made_up(300)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(x))
    plain = dg.GPRegressor(random_state=0).fit(x, y, sample_weight=weights)
    scaled = dg.GPRegressor(random_state=0).fit(x, y, sample_weight=1e4 * weights)
    assert np.isclose(scaled.noise_, 1e4 * plain.noise_, rtol=0.02)
    np.testing.assert_allclose(scaled.predict(x), plain.predict(x), atol=0.01)


def test_equal_weights_of_one_say_nothing():
    x, y, _ = made_up()
    plain = dg.GPRegressor(random_state=0).fit(x, y)
    weighted = dg.GPRegressor(random_state=0).fit(x, y, sample_weight=np.ones(len(x)))
    np.testing.assert_array_equal(plain.predict(x), weighted.predict(x))


def test_a_row_without_weight_says_nothing_about_scales_and_encodings():
    x, y, _ = made_up()
    wild, weights = np.append(x, [[1e6, 1e6]], axis=0), np.append(np.ones(len(x)), 0.0)
    fitted = dg.GPRegressor(random_state=0).fit(wild, np.append(y, 1e9), sample_weight=weights)
    np.testing.assert_array_equal(fitted.predict(x), dg.GPRegressor(random_state=0).fit(x, y).predict(x))
    frame = pandas.DataFrame({"a": x[:, 0], "b": np.where(x[:, 1] > 0, "up", "down")})
    more = pandas.concat([frame, pandas.DataFrame({"a": [1e6], "b": ["never seen"]})])
    fitted = dg.GPRegressor(random_state=0).fit(more, np.append(y, 1e9), sample_weight=weights)
    np.testing.assert_array_equal(fitted.predict(frame), dg.GPRegressor(random_state=0).fit(frame, y).predict(frame))


def test_more_rows_with_weights_are_the_same_as_all_at_once():
    x, y, _ = made_up()
    weights = np.random.default_rng(1).uniform(0.5, 3.0, len(x))
    fitted = dg.GPRegressor(random_state=0).fit(x[:60], y[:60], sample_weight=weights[:60])
    model, units = fitted.posterior_.model, fitted.units_
    last = np.append(weights[60:-1], 0.0)
    fitted.update(x[60:], y[60:], sample_weight=last)
    noise = float(model.noise) / weights[:-1]
    at_once = model.condition(units.inputs(x[:-1]), units.targets(x[:-1], y[:-1]), noise=noise, num_samples=0)
    np.testing.assert_allclose(fitted.posterior_.mean(units.inputs(x)), at_once.mean(units.inputs(x)), atol=1e-8)


def test_weights_find_their_way_through_a_pipeline():
    x, y, weights = made_up()
    settings = {"random_state": 0, "learn": False, "n_samples": 2}
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = dg.GPRegressor(**settings).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), estimator)
        fitted = pipeline.fit(x, y, sample_weight=weights)
        cross_validate(pipeline, x, y, params={"sample_weight": weights}, cv=2, error_score="raise")
    scaled = StandardScaler().fit_transform(x)
    direct = dg.GPRegressor(**settings).fit(scaled, y, sample_weight=weights)
    np.testing.assert_allclose(fitted.predict(x), direct.predict(scaled))


@pytest.mark.parametrize("change", [lambda w: -w, lambda w: w * np.nan, lambda w: w[:-1], lambda w: w[:, None]])
def test_impossible_weights_are_refused(change):
    x, y, _ = made_up()
    with pytest.raises(ValueError, match="sample_weight"):
        dg.GPRegressor().fit(x, y, sample_weight=change(np.ones(len(x))))


def test_weights_that_are_all_zero_are_refused():
    x, y, _ = made_up()
    with pytest.raises(ValueError, match=r"All weights .* are zero"):
        dg.GPRegressor().fit(x, y, sample_weight=np.zeros(len(x)))


def test_a_model_with_weights_is_saved_and_loaded(tmp_path):
    x, y, weights = made_up()
    fitted = dg.GPRegressor(random_state=0, learn=False).fit(x, y, sample_weight=weights)
    dg.save(fitted, tmp_path / "model.dgp")
    np.testing.assert_array_equal(dg.load(tmp_path / "model.dgp").predict(x), fitted.predict(x))


def test_the_command_line_takes_weights_from_a_column(tmp_path):
    x, y, weights = made_up()
    pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "often": weights, "y": y}).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--weights", "often", "-o", str(tmp_path / "m.dgp")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    model = dg.load(tmp_path / "m.dgp")
    assert model.encoding.names == ("a", "b")
    direct = dg.GPRegressor(random_state=0).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict(tmp_path / "t.csv")["mean"], direct.predict(x), rtol=1e-6)


def test_many_rows_with_weights_are_those_of_the_exact_posterior():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (4300, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=len(x))
    weights = rng.uniform(0.2, 4.0, len(x))
    settings = {"kernel": dg.Matern32(1.0), "noise": 0.09, "learn": False, "n_samples": 2, "random_state": 0}
    fitted = dg.GPRegressor(tol=1e-4, **settings).fit(x, y, sample_weight=weights)
    exact = dg.GPRegressor(solver=dg.Cholesky(), **settings).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(fitted.predict(x[:200]), exact.predict(x[:200]), atol=2e-3)


def test_learning_counts_a_weight_as_often_as_it_says():
    x, y, weights = made_up()
    some = weights > 0
    model = dg.GaussianProcess(dg.RBF([1.0, 1.0]), 0.1)
    weighted = dg.learn(model, x[some], y[some], noise=1.0 / weights[some], noise_role="factor", key=jax.random.key(0))
    fitted = dg.GPRegressor(dg.RBF([1.0, 1.0]), random_state=0).fit(x, y, sample_weight=weights)
    assert np.isclose(fitted.noise_, float(weighted.model.noise), rtol=0.05)
