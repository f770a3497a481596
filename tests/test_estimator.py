"""GPRegressor in scikit-learn's world."""

import pickle
import time

import jax
import joblib
import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualgp as dg
from datasets import prior_draw


def made_up(n=200, d=2, seed=0, units=(1.0, 1.0)):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, -1] + 0.1 * rng.normal(size=n)
    return 5.0 + units[0] * x, 3.0 + units[1] * y


class InSinglePrecision(dg.GPRegressor):
    """What the checks pass in, as float32."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(_single(X), y, sample_weight)


def _single(X):
    return X.astype(np.float32) if isinstance(X, np.ndarray) and X.dtype == np.float64 else X


@parametrize_with_checks([dg.GPRegressor(), InSinglePrecision()])
def test_the_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_predictions_are_those_of_scikit_learns_gpr_with_the_same_kernel():
    x, y = made_up()
    kernel = theirs.ConstantKernel(2.0) * theirs.Matern([0.7, 1.5], nu=1.5)
    reference = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(x, y - y.mean())
    ours = dg.GPRegressor(kernel, noise=0.01, learn=False, random_state=0).fit(x, y)
    x_new = made_up(seed=1)[0]
    mean, covariance = ours.predict(x_new, return_cov=True, noise=False)
    expected, expected_covariance = reference.predict(x_new, return_cov=True)
    np.testing.assert_allclose(mean, expected + y.mean(), atol=1e-8)
    np.testing.assert_allclose(covariance, expected_covariance, atol=1e-8)
    np.testing.assert_allclose(ours.predict(x_new, return_std=True)[1] ** 2, np.diag(covariance) + 0.01, atol=1e-8)


def test_a_white_kernel_is_the_noise_to_start_from():
    x, y = made_up()
    fitted = dg.GPRegressor(theirs.RBF(1.0) + theirs.WhiteKernel(0.3), learn=False, random_state=0).fit(x, y)
    assert np.isclose(fitted.noise_, 0.3)
    assert isinstance(fitted.kernel_, dg.RBF) and np.isclose(float(fitted.kernel_.variance), 1.0)


@pytest.mark.parametrize(
    "kernel", [theirs.RBF(1.0) ** 2, theirs.Matern(nu=0.7), theirs.RBF(1.0, "fixed"), theirs.ExpSineSquared()]
)
def test_kernels_without_a_counterpart_are_refused_with_advice(kernel):
    with pytest.raises(ValueError, match=r"no counterpart|not translated"):
        dg.GPRegressor(kernel).fit(*made_up())


def test_units_of_the_data_do_not_matter():
    plain = dg.GPRegressor(random_state=0).fit(*made_up())
    x, y = made_up(units=(1e4, 1e-6))
    other = dg.GPRegressor(random_state=0).fit(x, y)
    mean, std = plain.predict(made_up()[0], return_std=True)
    mean_other, std_other = other.predict(x, return_std=True)
    np.testing.assert_allclose((mean_other - 3.0) / 1e-6, mean - 3.0, atol=1e-3)
    np.testing.assert_allclose(std_other / 1e-6, std, rtol=1e-2)
    np.testing.assert_allclose(other.lengthscale_ / 1e4, plain.lengthscale_, rtol=0.05)
    np.testing.assert_allclose(other.noise_ / 1e-12, plain.noise_, rtol=0.05)


def test_what_is_learned_is_the_noise_and_the_function():
    x, y = made_up(n=600)
    fitted = dg.GPRegressor(random_state=0).fit(x, y)
    x_new, _ = made_up(seed=1)
    truth = 3.0 + np.sin(2 * (x_new[:, 0] - 5.0)) + 0.5 * (x_new[:, 1] - 5.0)
    assert np.isclose(fitted.noise_, 0.01, rtol=0.25)
    assert dg.metrics.rmse(truth, fitted.predict(x_new)) < 0.05
    assert fitted.score(x, y) > 0.95


def test_a_given_noise_stays():
    fitted = dg.GPRegressor(noise=0.04, random_state=0).fit(*made_up())
    assert np.isclose(fitted.noise_, 0.04)


def test_draws_of_observations_have_the_predicted_moments():
    x, y = made_up()
    fitted = dg.GPRegressor(random_state=0).fit(x, y)
    draws = fitted.sample_y(x[:5], n_samples=20_000)  # more than there are functions: exact draws
    mean, covariance = fitted.predict(x[:5], return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * np.sqrt(covariance.max() / 20_000))
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.05 * covariance.max())
    assert fitted.sample_y(x[:5]).shape == (5, 1)
    assert np.array_equal(fitted.sample_y(x[:5], 3), fitted.sample_y(x[:5], 3))


def test_functions_are_functions():
    x, y = made_up()
    fitted = dg.GPRegressor(n_samples=8, random_state=0).fit(x, y)
    f = fitted.sample_functions()
    assert f(x).shape == (8, len(x))
    np.testing.assert_allclose(f(x)[:, 3:5], f(x[3:5]), atol=1e-5)


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_data_frames_are_accepted_and_their_names_remembered(frame):
    x, y = made_up()
    table = frame({"width": x[:, 0], "height": x[:, 1]})
    fitted = dg.GPRegressor(random_state=0, learn=False).fit(table, y)
    assert list(fitted.feature_names_in_) == ["width", "height"]
    np.testing.assert_array_equal(
        fitted.predict(table), dg.GPRegressor(random_state=0, learn=False).fit(x, y).predict(x)
    )
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame({"height": x[:, 1], "width": x[:, 0]}))


def test_it_works_in_pipelines_searches_and_across_processes():
    x, y = made_up(n=60)
    pipeline = make_pipeline(StandardScaler(), dg.GPRegressor(random_state=0, n_samples=4, learn=False))
    search = GridSearchCV(pipeline, {"gpregressor__noise": [0.01, 10.0]}, cv=2, n_jobs=2).fit(x, y)
    assert search.best_params_ == {"gpregressor__noise": 0.01}
    assert cross_val_predict(clone(pipeline), x, y, cv=2).shape == y.shape


@pytest.mark.parametrize("copy", [lambda v, _: pickle.loads(pickle.dumps(v)), lambda v, path: _by_joblib(v, path)])
def test_copies_predict_the_same_to_the_last_bit(copy, tmp_path):
    x, y = made_up()
    fitted = dg.GPRegressor(random_state=0).fit(x, y)
    other = copy(fitted, tmp_path / "model")
    for a, b in zip(fitted.predict(x, return_std=True), other.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(fitted.sample_functions()(x), other.sample_functions()(x))


def _by_joblib(value, path):
    joblib.dump(value, path)
    return joblib.load(path)


def test_more_data_are_the_same_as_all_data_at_once():
    x, y = made_up()
    fitted = dg.GPRegressor(random_state=0).fit(x[:150], y[:150])
    model = fitted.posterior_.model
    fitted.update(x[150:], y[150:])
    centred, scaled = x - fitted.X_offset_, (y - fitted.y_offset_) / fitted.y_scale_
    at_once = model.condition(centred, scaled, num_samples=0)
    np.testing.assert_allclose(fitted.posterior_.mean(centred), at_once.mean(centred), atol=1e-8)


def test_progress_is_shown(capsys):
    x, y = made_up(n=5000)
    dg.GPRegressor(random_state=0, learn=False, n_samples=2, verbose=2).fit(x, y)
    shown = capsys.readouterr()
    assert "residual" in shown.err and "%" in shown.err
    assert "all 5,000 points" in shown.out


def test_a_time_limit_is_kept_and_error_bars_stay():
    x, y = made_up(n=40_000, d=6)
    limited = dg.GPRegressor(random_state=0, max_seconds=4.0, n_samples=16, tol=1e-6)
    limited.fit(x, y)  # compiles
    began = time.perf_counter()
    fitted = limited.fit(x, y)
    assert 2.0 < time.perf_counter() - began < 1.1 * 4.0 + 2.0
    assert not fitted.finished_ and not fitted.interrupted_ and "time limit" in fitted.message_
    mean, std = fitted.predict(x[:100], return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0)


def test_the_kernel_is_chosen_by_the_data_unless_it_is_given():
    made = prior_draw(dg.GaussianProcess(dg.RBF(0.1), noise=1e-4), 300, d=2, key=jax.random.key(1))
    fitted = dg.GPRegressor(random_state=0, n_samples=2).fit(made.x, made.y)
    assert isinstance(fitted.kernel_, dg.RBF) and "Kernel: RBF" in fitted.report()
    given = dg.GPRegressor(dg.Matern12([1.0, 1.0]), random_state=0, n_samples=2).fit(made.x, made.y)
    assert isinstance(given.kernel_, dg.Matern12) and "Kernel: " not in given.message_


def test_learning_and_conditioning_draw_their_own_numbers(monkeypatch):
    keys = []
    for name in ("learn", "condition"):
        spy = lambda function: lambda *a, **k: keys.append(k["key"]) or function(*a, **k)
        where = "dualgp.sklearn.conditioning.learn" if name == "learn" else "dualgp.gp.GaussianProcess.condition"
        monkeypatch.setattr(where, spy(dg.learn if name == "learn" else dg.GaussianProcess.condition))
    dg.GPRegressor(random_state=0, n_samples=2).fit(*made_up())
    dg.GPRegressor(random_state=0, n_samples=2).fit(*made_up())
    learned, conditioned, *again = [tuple(jax.random.key_data(key).tolist()) for key in keys]
    assert learned != conditioned and again == [learned, conditioned]


def test_scikit_learns_callbacks_see_every_step_and_may_stop_it():
    pytest.importorskip("sklearn.callback")

    class Watch:
        def __init__(self, stop):
            self.tasks, self.stop, self.torn_down = [], stop, False

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            self.torn_down = True

        def on_fit_task_begin(self, estimator, context):
            self.tasks.append(context.task_name)

        def on_fit_task_end(self, estimator, context):
            return self.stop

    patient, hasty = Watch(False), Watch(True)
    for watch in (patient, hasty):
        dg.GPRegressor(random_state=0).set_callbacks(watch).fit(*made_up())
        assert watch.torn_down
        assert watch.tasks[0] == "fit"
    assert 1 < len(hasty.tasks) < len(patient.tasks)


def test_without_functions_error_bars_are_exact_for_few_rows_and_upper_bounds_for_many():
    x, y = made_up()
    fitted = dg.GPRegressor(n_samples=0, random_state=0).fit(x, y)
    assert np.all(fitted.predict(x, return_std=True)[1] > 0)
    few, many = (
        dg.GPRegressor(n_samples=num, random_state=0, learn=False).fit(*made_up(n=4200)).predict(x, return_std=True)[1]
        for num in (0, 64)
    )
    assert np.all(few >= many * 0.99)  # without functions those of the neighbours alone, an upper bound


def test_a_checkpoint_is_for_the_same_fit_and_goes_away_when_it_is_complete(tmp_path):
    x, y = made_up(n=1700)
    path = tmp_path / "fit.part"
    settings = {"n_samples": 2, "checkpoint": path}
    first = dg.GPRegressor(**settings).fit(x, y)
    assert first.finished_ and not list(tmp_path.iterdir())
    stopped = dg.GPRegressor(**settings, max_seconds=1e-3).fit(x, y)
    assert not stopped.finished_ and "time limit" in stopped.message_
    again = dg.GPRegressor(**settings).fit(x, y)  # no random_state: the same numbers all the same
    np.testing.assert_array_equal(first.predict(x), again.predict(x))
    dg.GPRegressor(**settings).fit(x[:1600], y[:1600])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [0.1, 7.0, 0.0, -1e9])
def test_constants_are_constants_whatever_their_binary_digits(value):
    x, _ = made_up()
    x[:, 1] = value
    fitted = dg.GPRegressor(random_state=0).fit(x, np.full(len(x), value))
    mean, std = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(mean, value)
    assert np.all(std > 0.1) and f"All targets are {value:.4g}" in fitted.message_
    shifted = x + np.array([0.0, 1e-6])
    y = np.sin(x[:, 0])
    other = dg.GPRegressor(random_state=0, learn=False).fit(x, y)
    np.testing.assert_allclose(other.predict(shifted), other.predict(x), atol=1e-3)


def test_functions_stay_what_they_are_after_another_fit():
    x, y = made_up()
    fitted = dg.GPRegressor(n_samples=2, random_state=0, learn=False).fit(x, y)
    f = fitted.sample_functions()
    before = f(x[:5])
    fitted.update(x[:20] + 0.1, y[:20])
    np.testing.assert_array_equal(f(x[:5]), before)


def test_a_refit_leaves_nothing_of_the_last_one():
    x, y = made_up()
    fitted = dg.GPRegressor(random_state=0, learn=False).fit(x, y)
    assert hasattr(fitted, "lengthscale_")
    fitted.set_params(kernel=dg.RBF() + dg.Matern32()).fit(x, y)
    assert not hasattr(fitted, "lengthscale_")


def test_fixed_bounds_do_not_matter_where_nothing_is_learned():
    fitted = dg.GPRegressor(theirs.RBF(0.7, "fixed"), learn=False, random_state=0).fit(*made_up())
    assert float(fitted.kernel_.lengthscale) == 0.7


def test_a_wrong_solver_is_refused_before_the_work(monkeypatch):
    monkeypatch.setattr("dualgp.sklearn.conditioning.learn", lambda *a, **k: pytest.fail("learned first"))
    with pytest.raises(TypeError, match="solver must be 'auto'"):
        dg.GPRegressor(solver="cg").fit(*made_up())


def test_hardly_any_noise_is_solved_in_double_precision():
    x, _ = made_up(n=4500)
    fitted = dg.GPRegressor(dg.RBF(1.0), noise=1e-7, learn=False, n_samples=0, random_state=0)
    fitted.fit(x.astype(np.float32), np.sin(2 * x[:, 0]))
    assert fitted.posterior_.x.dtype == np.float64
    assert "solved again in float64" in fitted.message_


@pytest.mark.parametrize(
    ("noise", "error"), [(0.0, ValueError), (-1.0, ValueError), (np.nan, ValueError), ("a", TypeError)]
)
def test_an_impossible_noise_is_refused_in_the_units_it_was_given_in(noise, error):
    with pytest.raises(error, match=f"noise.*{str(noise)[:2] if error is ValueError else 'real numbers'}"):
        dg.GPRegressor(noise=noise).fit(*made_up(units=(1.0, 50.0)))
