"""Several outputs: one kernel and one noise, a mean and a scale for each."""

import numpy as np
import pandas
import pytest
from click.testing import CliRunner
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs
from sklearn.metrics import r2_score
from sklearn.utils import get_tags

import dualgp as dg
from dualgp._npz import NotReadable, read, write
from dualgp.sklearn.effects import importances
from dualgp.table.cli import main
from dualgp.table.model import fit_table
from dualgp.table.report import make_report


def made_up(n=150, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    y = np.stack([np.sin(2 * x[:, 0]), 1000.0 + 50.0 * np.cos(2 * x[:, 1])], axis=1)
    return x, y + np.array([0.1, 5.0]) * rng.normal(size=y.shape)


@pytest.fixture(scope="module")
def fitted():
    return dg.GPRegressor(random_state=0).fit(*made_up())


def test_predictions_are_those_of_scikit_learns_gpr_with_the_same_kernel(fitted):
    x, y = made_up()
    y[:, 1] = y[:, 1] / 50.0
    kernel = theirs.ConstantKernel(2.0) * theirs.Matern([0.7, 1.5], nu=1.5)
    reference = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(x, y - y.mean(axis=0))
    ours = dg.GPRegressor(kernel, noise=0.01, learn=False, random_state=0).fit(x, y)
    x_new = made_up(seed=1)[0]
    mean, covariance = ours.predict(x_new, return_cov=True, noise=False)
    expected, expected_covariance = reference.predict(x_new, return_cov=True)
    assert covariance.shape == expected_covariance.shape == (150, 150, 2)
    np.testing.assert_allclose(mean, expected + y.mean(axis=0), atol=1e-8)
    np.testing.assert_allclose(covariance, expected_covariance, atol=1e-8)
    std = ours.predict(x_new, return_std=True)[1]
    np.testing.assert_allclose(std**2, reference.predict(x_new, return_std=True)[1] ** 2 + 0.01, atol=1e-8)
    np.testing.assert_allclose(ours.noise_, [0.01, 0.01])
    assert ours.sample_y(x_new[:5], 3).shape == reference.sample_y(x_new[:5], 3).shape == (5, 2, 3)


def test_every_output_has_a_scale_and_a_mean_of_its_own(fitted):
    x_new, y_new = made_up(seed=1)
    mean, std = fitted.predict(x_new, return_std=True)
    assert mean.shape == std.shape == (150, 2)
    assert np.all(dg.metrics.rmse(y_new[:, 0], mean[:, 0]) < 0.15) and dg.metrics.rmse(y_new[:, 1], mean[:, 1]) < 7.5
    assert fitted.noise_.shape == fitted.mean_.shape == fitted.y_scale_.shape == (2,)
    np.testing.assert_allclose(np.sqrt(fitted.noise_), [0.1, 5.0], rtol=0.4)
    inside = np.mean(np.abs(y_new - mean) < 1.645 * std, axis=0)
    assert np.all((inside > 0.8) & (inside < 0.99))
    assert np.isclose(fitted.score(x_new, y_new), r2_score(y_new, mean))


def test_quantiles_and_functions_have_an_axis_for_outputs(fitted):
    x = made_up(seed=1)[0][:9]
    quantiles = fitted.predict(x, quantiles=[0.1, 0.5, 0.9], calibrated=False)
    mean, std = fitted.predict(x, return_std=True)
    assert quantiles.shape == (9, 2, 3)
    np.testing.assert_allclose(quantiles[:, :, 1], mean)
    np.testing.assert_allclose(quantiles[:, :, 2], mean + 1.2815515655446004 * std)
    functions = fitted.sample_functions()(x)
    assert functions.shape == (16, 9, 2)
    np.testing.assert_allclose(functions.mean(axis=0), mean, atol=4 * std.max(axis=0).max())


def test_draws_of_observations_have_the_predicted_moments(fitted):
    x = made_up(seed=1)[0][:4]
    draws = fitted.sample_y(x, n_samples=20_000)
    mean, covariance = fitted.predict(x, return_cov=True)
    for j in range(2):
        largest = covariance[:, :, j].max()
        np.testing.assert_allclose(draws[:, j].mean(axis=1), mean[:, j], atol=5 * np.sqrt(largest / 20_000))
        np.testing.assert_allclose(np.cov(draws[:, j]), covariance[:, :, j], atol=0.05 * largest)
    assert abs(np.corrcoef(draws[0, 0], draws[0, 1])[0, 1]) < 0.03  # outputs deviate independently


def test_one_output_by_itself_predicts_the_same(fitted):
    x = made_up(seed=1)[0]
    mean, std = fitted.predict(x, return_std=True)
    for j in range(2):
        one = fitted.output(j)
        found, own = one.predict(x, return_std=True)
        np.testing.assert_allclose(found, mean[:, j], rtol=1e-10)
        np.testing.assert_allclose(own, std[:, j], rtol=1e-10)
        assert np.isclose(one.noise_, fitted.noise_[j]) and "noise variance" in one.report()
    with pytest.raises(IndexError, match="2 output"):
        fitted.output(2)


def test_what_is_about_one_output_asks_which(fitted):
    with pytest.raises(ValueError, match=r"regressor.output\(0\)"):
        importances(fitted)
    assert [next(iter(importances(fitted.output(j)))) for j in range(2)] == ["x1", "x2"]


def test_a_column_is_the_same_as_a_vector():
    x, y = made_up()
    vector, column = (dg.GPRegressor(random_state=0, learn=False).fit(x, own) for own in (y[:, 0], y[:, :1]))
    np.testing.assert_array_equal(vector.predict(x), column.predict(x))
    assert get_tags(dg.GPRegressor()).target_tags.multi_output


def test_a_constant_output_leaves_the_others_as_they_are():
    x, y = made_up()
    both = dg.GPRegressor(random_state=0).fit(x, np.stack([y[:, 0], np.full(len(x), 7.0)], axis=1))
    alone = dg.GPRegressor(dg.RBF([1.0, 1.0]), random_state=0).fit(x, y[:, 0])
    again = dg.GPRegressor(dg.RBF([1.0, 1.0]), random_state=0)
    again.fit(x, np.stack([np.full(len(x), 7.0), y[:, 0]], axis=1))
    np.testing.assert_allclose(both.predict(x)[:, 1], 7.0)
    np.testing.assert_allclose(again.predict(x)[:, 1], alone.predict(x), atol=1e-6)
    np.testing.assert_allclose(again.predict(x, return_std=True)[1][:, 1], alone.predict(x, return_std=True)[1])


def test_a_missing_value_in_one_output_is_a_sentence():
    x, y = made_up()
    y[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 3, output 1.*leave such rows out"):
        dg.GPRegressor().fit(x, y)


def test_another_number_of_outputs_is_refused(fitted):
    x, y = made_up()
    with pytest.raises(ValueError, match="output"):
        dg.GPRegressor(random_state=0, learn=False).fit(x, y).update(x, y[:, 0])


def test_more_data_are_the_same_as_all_data_at_once():
    x, y = made_up()
    fitted = dg.GPRegressor(random_state=0).fit(x[:100], y[:100])
    model, units = fitted.posterior_.model, fitted.units_
    fitted.update(x[100:], y[100:])
    at_once = model.condition(units.inputs(x), units.targets(x, y), num_samples=0)
    np.testing.assert_allclose(fitted.posterior_.mean(x), at_once.mean(x), atol=1e-8)


def test_transforms_and_trends_are_of_each_output():
    x, y = made_up()
    positive = np.exp(0.5 * y / y.std(axis=0))
    logs = dg.GPRegressor(random_state=0, learn=False, target_transform="log").fit(x, positive)
    one = dg.GPRegressor(random_state=0, learn=False, target_transform="log").fit(x, positive[:, 1])
    assert [warp.kind for warp in logs.warp_] == ["log", "log"]
    np.testing.assert_allclose(one.predict(x, quantiles=[0.5]), logs.output(1).predict(x, quantiles=[0.5]), rtol=0.05)
    sloped = dg.GPRegressor(random_state=0, learn=False, trend=True).fit(x, y + 1000.0 * x)
    far = np.array([[50.0, 50.0], [60.0, 60.0]])
    np.testing.assert_allclose(np.diff(sloped.predict(far), axis=0), [[1e4, 1e4]], rtol=0.05)


def test_files_keep_all_outputs_and_are_checked(fitted, tmp_path):
    x, path = made_up(seed=1)[0], tmp_path / "model.dgp"
    dg.save(fitted, path)
    loaded = dg.load(path)
    for a, b in zip(fitted.predict(x, return_std=True), loaded.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    header, arrays = read(path)
    units = header["content"]["fields"]["units_"]["fields"]["each"]["tuple"]
    del units[1]
    write(path, header, arrays)
    with pytest.raises(NotReadable, match="output"):
        dg.load(path)


def table(n=200):
    rng = np.random.default_rng(0)
    x, y = made_up(n)
    streets = rng.choice([f"street {i}" for i in range(30)], n)
    effect = rng.normal(0, 1, 30)[[int(street[7:]) for street in streets]]
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "street": streets})
    return frame, y + effect[:, None] * np.array([0.5, 30.0])


def test_frames_with_text_have_several_outputs():
    frame, y = table()
    fitted = dg.GPRegressor(random_state=0).fit(frame, y)
    mean, std = fitted.predict(frame, return_std=True)
    assert mean.shape == std.shape == (200, 2) and fitted.score(frame, y) > 0.7


def test_a_table_with_several_targets_has_columns_for_each():
    frame, y = table()
    frame = frame.assign(price=y[:, 0], rent=y[:, 1])
    frame.loc[5, "rent"] = np.nan
    model = fit_table(frame, ["price", "rent"], random_state=0, learn=False)
    assert "1 of 200 rows were left out" in " ".join(model.encoding.notes)
    found = model.predict(frame)
    assert list(found)[:3] == ["price_mean", "price_median", "price_std"] and "rent_q95" in found
    x = frame[["a", "b", "street"]]
    np.testing.assert_allclose(found["rent_mean"], model.regressor.predict(x)[:, 1])
    assert set(model.sample(frame, 2)) == {"price_f1", "price_f2", "rent_f1", "rent_f2"}
    assert {"price: dualgp", "rent: ridge regression"} <= set(model.evaluate(frame))
    page = make_report(model)
    assert "<h1>price</h1>" in page and "<h1>rent</h1>" in page


def test_the_command_line_takes_several_targets(tmp_path):
    frame, y = table()
    frame.assign(price=y[:, 0], rent=y[:, 1]).to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", str(tmp_path / "t.csv"), "--target", "price", "--target", "rent", "-o", str(tmp_path / "m.dgp")]
    result = CliRunner().invoke(main, [*fit, "--hold-out", "0.2"])
    assert result.exit_code == 0, result.output
    assert "rent: dualgp" in result.output and result.output.count("How good:") == 2
    result = CliRunner().invoke(main, ["predict", str(tmp_path / "m.dgp"), str(tmp_path / "t.csv")])
    assert result.exit_code == 0 and result.output.startswith("price_mean,price_median,price_std,price_q05")
    assert CliRunner().invoke(main, ["info", str(tmp_path / "m.dgp")]).output.startswith("Predicts 'price', 'rent'")
