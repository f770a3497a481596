"""GPRegressor on tables as people have them: copies, trends, frames with more than numbers."""

import jax
import numpy as np
import pandas
import polars
import pytest
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import dualgp as dg
from dualgp._npz import NotReadable, read, write
from dualgp.learning.priors import scales_seen
from dualgp.operators.merging import is_copy
from dualgp.posterior.posterior import AllRows
from dualgp.table.model import fitted_data


def made_up(n=300, seed=0):
    """Numbers with holes, text, ordered categories, dates."""
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "area": rng.gamma(4, 30, n),
            "city": rng.choice(["Basel", "Bern", "Zug"], n),
            "street": rng.choice([f"street {i}" for i in range(40)], n),
            "state": pandas.Categorical(
                rng.choice(["bad", "fair", "good"], n), categories=["bad", "fair", "good"], ordered=True
            ),
            "sold": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(0, 1500, n), unit="D"),
        }
    )
    effects = np.random.default_rng(99).normal(0, 30, 40)[frame.street.str[7:].astype(int)]
    y = 2 * frame.area + 100 * (frame.city == "Zug") + effects + 40 * frame.state.cat.codes + 10 * rng.normal(size=n)
    frame.loc[rng.choice(n, 20, replace=False), "area"] = np.nan
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def fitted():
    return dg.GPRegressor(random_state=0).fit(*made_up())


def test_a_frame_with_text_dates_and_holes_is_fitted_as_it_is(fitted):
    frame, y = made_up(seed=1)
    whole = frame.area.notna()
    mean, std = fitted.predict(frame, return_std=True)
    assert dg.metrics.rmse(y[whole], mean[whole]) < 0.2 * y.std()
    assert dg.metrics.coverage(y, mean, std, 0.9) > 0.8
    assert std[~whole].mean() > 2 * std[whole].mean()  # what is missing is not known
    assert list(fitted.feature_names_in_) == list(frame) and fitted.n_features_in_ == 5
    assert fitted.predict(frame, quantiles=[0.1, 0.5, 0.9]).shape == (300, 3)


def test_both_frame_libraries_and_any_order_of_columns_give_the_same(fitted):
    frame = made_up(seed=1)[0]
    expected = fitted.predict(frame)
    np.testing.assert_array_equal(fitted.predict(frame[frame.columns[::-1]]), expected)
    plain = frame.assign(state=frame.state.astype(str))
    np.testing.assert_array_equal(fitted.predict(polars.from_pandas(plain)), expected)
    with pytest.raises(ValueError, match="no column 'city'"):
        fitted.predict(frame.drop(columns="city"))
    with pytest.raises(TypeError, match="fitted to a frame with the columns 'area'"):
        fitted.predict(frame.to_numpy())


def test_a_frame_of_polars_with_text_is_fitted_like_one_of_pandas():
    frame, y = made_up(60)[:2]
    plain = frame.assign(state=frame.state.astype(str))
    settings = {"kernel": dg.Matern32(1.0), "noise": 0.1, "learn": False, "random_state": 0}
    one, other = (dg.GPRegressor(**settings).fit(x, y) for x in (plain, polars.from_pandas(plain)))
    np.testing.assert_array_equal(one.predict(plain), other.predict(plain))


def test_the_kernel_that_is_chosen_for_a_frame_keeps_the_groups(fitted):
    assert "Kernel: " in fitted.message_  # others were tried, with as many lengthscales
    assert fitted.kernel_.widths == fitted.encoding_.widths and max(fitted.kernel_.widths) > 1
    assert fitted.kernel_.lengthscale.shape == (len(fitted.encoding_.widths),)
    assert fitted.lengthscale_.shape == (sum(fitted.encoding_.widths),)


@pytest.mark.parametrize("kind", [dg.Matern32, dg.kernels.Laplace, dg.kernels.Periodic, dg.kernels.RationalQuadratic])
def test_shared_lengthscales_are_those_that_are_repeated(kind):
    x = np.random.default_rng(0).normal(size=(7, 3))
    shared, repeated = kind([0.9, 1.7], 1.1, widths=(1, 2)), kind([0.9, 1.7, 1.7], 1.1)
    np.testing.assert_array_equal(shared(x, x), repeated(x, x))
    np.testing.assert_array_equal(shared.coordinates(x), repeated.coordinates(x))
    with pytest.raises(ValueError, match="width"):
        kind([0.9, 1.7], 1.1, widths=(3, 0))


def test_priors_see_the_distances_of_a_group_and_the_periods_of_columns():
    kernel = dg.kernels.Periodic([0.9, 1.7], 1.1, period=[1.0, 2.0, 3.0], widths=(1, 2))
    model, scales = dg.GaussianProcess(kernel, 0.1), np.array([1.0, 3.0, 4.0])
    np.testing.assert_allclose(scales_seen(model, "kernel.lengthscale", scales), [1.0, 5.0])
    np.testing.assert_allclose(scales_seen(model, "kernel.period", scales), scales)


def change_column(header, name, value):
    columns = header["content"]["fields"]["encoding_"]["fields"]["columns"]["tuple"]
    for column in columns:
        if name in column["fields"]:
            column["fields"][name] = value


@pytest.mark.parametrize(
    "change",
    [
        lambda header: change_column(header, "fill", float("inf")),
        lambda header: change_column(header, "median", 7.0),
        lambda header: change_column(header, "usual", -1.0),
        lambda header: change_column(header, "effects", None),
        lambda header: change_column(header, "circles", {"tuple": ["decade"]}),
        lambda header: header["content"]["fields"]["encoding_"]["fields"]["columns"]["tuple"].pop(),
        lambda header: header["content"]["fields"]["units_"]["fields"].update(x_offset={"array": "a0"}),
    ],
)
def test_encodings_that_were_changed_are_not_loaded(change, fitted, tmp_path):
    dg.save(fitted, tmp_path / "m")
    header, arrays = read(tmp_path / "m")
    change(header)
    arrays = {name: arrays[name] for name in arrays if f"'{name}'" in str(header)}
    write(tmp_path / "m", header, arrays)
    with pytest.raises(NotReadable, match="does not hold together"):
        dg.load(tmp_path / "m")


def test_fitted_data_are_all_rows_where_only_some_have_weights():
    x = np.random.default_rng(0).normal(size=(400, 2)) + 5.0
    y = np.exp(np.sin(x[:, 0]) + x[:, 1])
    model = dg.GPRegressor(random_state=0, learn=False, target_transform="log", trend=True).fit(x, y)
    targets = model.units_.targets(centred := model.units_.inputs(x), y)
    model.posterior_ = model.posterior_.model.condition(
        centred, targets, solver=dg.BlockDescent(block_size=64), neighbours=16, num_far=100, key=jax.random.key(0)
    )
    assert isinstance(model.posterior_.all_rows, AllRows) and model.posterior_.num_far == 100
    for found, expected in zip(fitted_data(model), (x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_unknown_and_rare_values_have_wider_bars(fitted):
    frame = made_up(seed=1)[0][:50].assign(area=100.0)
    known = fitted.predict(frame, return_std=True)[1]
    with pytest.warns(UserWarning, match="'street' has values unknown to the model, such as 'elsewhere'"):
        unknown = fitted.predict(frame.assign(street="elsewhere"), return_std=True)[1]
    assert unknown.min() > 1.3 * np.median(known) and np.median(unknown) > 25.0  # streets differ by 30


def test_models_of_frames_are_saved_updated_and_drawn(fitted, tmp_path):
    frame, y = made_up(seed=1)
    dg.save(fitted, tmp_path / "model.dgp")
    loaded = dg.load(tmp_path / "model.dgp")
    np.testing.assert_array_equal(loaded.predict(frame), fitted.predict(frame))
    before = loaded.predict(frame[:1], return_std=True)[1]
    loaded.update(frame[:1], y[:1])
    assert loaded.posterior_.n == 301 and loaded.predict(frame[:1], return_std=True)[1] < before
    assert loaded.sample_functions()(frame[:5]).shape == (16, 5)


def test_frames_go_through_pipelines_and_searches():
    frame, y = made_up(80)
    search = GridSearchCV(
        dg.GPRegressor(random_state=0, n_samples=4, target_transform="none"), {"trend": [True, False]}, cv=2
    )
    assert search.fit(frame, y).best_score_ > 0.5
    some = make_column_transformer(("passthrough", ["city", "area"]), verbose_feature_names_out=False)
    pipeline = make_pipeline(some.set_output(transform="pandas"), dg.GPRegressor(random_state=0, n_samples=4))
    assert pipeline.fit(frame, y).predict(frame).shape == (80,)


def test_frames_of_numbers_alone_are_arrays_with_names():
    frame, y = made_up()
    numbers = frame[["area"]].dropna()
    plain = dg.GPRegressor(random_state=0, learn=False).fit(numbers, y[frame.area.notna()])
    assert plain.encoding_ is None
    other = dg.GPRegressor(random_state=0, learn=False).fit(numbers.to_numpy(), y[frame.area.notna()])
    np.testing.assert_array_equal(plain.predict(numbers), other.predict(numbers.to_numpy()))


def test_copied_rows_count_once_and_do_not_say_that_there_is_no_noise():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(180, 40))
    y = x[:, 0] + rng.normal(size=180)
    plain = dg.GPRegressor(random_state=0).fit(x, y)
    copied = dg.GPRegressor(random_state=0).fit(np.vstack([x, x[:6]]), np.append(y, y[:6]))
    assert "6 rows are copies of others" in copied.report()
    assert copied.posterior_.n == 180
    np.testing.assert_allclose(copied.noise_, plain.noise_, rtol=1e-3)
    frame = pandas.DataFrame(x[:, :2], columns=["a", "b"]).assign(c=rng.choice(["u", "v", "w"], 180))
    twice = dg.GPRegressor(random_state=0, learn=False).fit(pandas.concat([frame, frame[:6]]), np.append(y, y[:6]))
    assert twice.posterior_.n == 180


def test_repeated_measurements_are_not_copies():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (400, 2)).astype(float)
    votes = rng.integers(1, 6, 400).astype(float)
    assert not is_copy(x.T, votes).any()  # equal by chance, among 45 possible rows
    assert not is_copy(x.T, rng.normal(size=400)).any()
    y = rng.normal(size=400)
    again = np.r_[0:400, 0:5]
    assert np.flatnonzero(is_copy(x[again].T, y[again])).tolist() == []  # all differ from others at their x
    unique = rng.normal(size=(400, 2))
    assert np.flatnonzero(is_copy(unique[again].T, y[again])).tolist() == [400, 401, 402, 403, 404]


def _with_trend(n, d=6, seed=0, slope=3.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, slope * (x @ np.linspace(-1, 1, d)) + np.sin(3 * x[:, 0]) + 0.3 * rng.normal(size=n)


def test_a_linear_trend_goes_on_where_the_data_end():
    x, y = _with_trend(500)
    x_far, y_far = _with_trend(200, seed=1)
    x_far, y_far = x_far + 4.0, y_far + 12.0 * np.linspace(-1, 1, 6).sum()
    with_trend, without = (dg.GPRegressor(random_state=0, trend=trend).fit(x, y) for trend in (True, False))
    assert dg.metrics.rmse(y_far, with_trend.predict(x_far)) < dg.metrics.rmse(y_far, without.predict(x_far))
    assert "A linear trend explains" in with_trend.report() and "trend" not in without.report()
    f = with_trend.sample_functions()(x_far)
    assert abs(np.mean(f.mean(axis=0) - with_trend.predict(x_far))) < 1.0


def test_a_trend_that_does_not_help_is_not_taken():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (1200, 2))
    y = np.cos(2 * x[:, 0]) * np.cos(x[:, 1]) + 0.1 * rng.normal(size=1200)
    from dualgp.sklearn.choices import choose_trend
    from dualgp.sklearn.preparation import standard_model

    assert choose_trend(standard_model(x, None), x, (y - y.mean()) / y.std(), 0.0) is None
    x, y = _with_trend(2000, d=15)
    x = x - x.mean(axis=0)
    slopes = choose_trend(standard_model(x, None), x, (y - y.mean()) / y.std(), 0.0)
    np.testing.assert_allclose(slopes[1:] * y.std(), 3.0 * np.linspace(-1, 1, 15)[1:], atol=0.15)


def test_a_fit_without_time_keeps_the_floor_and_is_not_learned_twice(monkeypatch):
    import jax

    from dualgp.learning import Learned
    from dualgp.sklearn import conditioning
    from dualgp.solvers.stopping import Deadline

    calls = []

    def hasty(model, x, y, **run):
        calls.append(run)
        late = dg.GaussianProcess(model.kernel, 1e-4)
        return Learned(late, late.condition(x, y, num_samples=0), (), "Late.", finished=False)

    monkeypatch.setattr(conditioning, "learn", hasty)
    x = np.linspace(0, 1, 50)[:, None]
    condition = conditioning.Conditioning(x, np.sin(9 * x[:, 0]), jax.random.key(0), Deadline(1.0), {}, 0.01)
    learned = condition.learn(dg.GaussianProcess(dg.Matern32(), 0.1), (), "file")
    assert float(learned.model.noise) == 0.01 and learned.posterior is None and len(calls) == 1


def test_a_noise_at_its_floor_is_said():
    x = np.linspace(0, 1, 100)[:, None]
    assert "The noise is at its floor" in dg.GPRegressor(random_state=0).fit(x, np.sin(7 * x[:, 0])).report()
