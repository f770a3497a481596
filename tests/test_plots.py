"""Pictures show the numbers they should."""

import jax
import matplotlib
import numpy as np
import pandas
import pytest

import dualgp as dg

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = 100.0 + 10 * rng.uniform(size=(300, 3))
    y = 50.0 + np.sin(x[:, 0]) + 0.1 * rng.normal(size=300)
    return dg.GPRegressor(random_state=0).fit(x, y)


@pytest.fixture(scope="module")
def iterated():
    x = np.random.default_rng(0).uniform(size=(600, 2)).astype(np.float32)
    model = dg.GaussianProcess(dg.Matern32(0.3), 0.05)
    return model.condition(x, x[:, 0], solver=dg.BlockDescent(block_size=50), num_samples=4, key=jax.random.key(0))


@pytest.mark.parametrize("against", ["passes", "seconds"])
def test_convergence_shows_the_trace_and_the_check(against, iterated):
    axes = dg.plots.convergence(iterated, against=against)
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines["mean"].get_xdata(), getattr(iterated.solution.trace, against))
    np.testing.assert_array_equal(lines["mean"].get_ydata(), iterated.solution.trace.residual[:, 0])
    assert axes.get_yscale() == "log"
    axes.figure.canvas.draw()
    left, right = axes.get_ylim()[1], axes.child_axes[0].get_ylim()[1]
    np.testing.assert_allclose(right / left, iterated.error_bound() / iterated.solution.residual_upper[0])


def test_convergence_of_an_exact_solution_is_a_dot(fitted):
    dg.plots.convergence(fitted).figure.canvas.draw()
    with pytest.raises(ValueError, match="'passes' or 'seconds'"):
        dg.plots.convergence(fitted, against="steps")


def test_calibration_of_honest_predictions_is_the_diagonal():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=20_000), rng.gamma(2.0, size=20_000)
    axes = dg.plots.calibration(mean + std * rng.normal(size=20_000), mean, std)
    line = axes.get_lines()[-1]
    assert np.max(np.abs(line.get_ydata() - line.get_xdata())) < 0.02
    narrow = dg.plots.calibration(mean + std * rng.normal(size=20_000), mean, 0.5 * std).get_lines()[-1]
    assert np.all(narrow.get_ydata()[1:-1] < narrow.get_xdata()[1:-1])


def test_predicted_against_observed_counts_what_is_inside():
    rng = np.random.default_rng(0)
    axes = dg.plots.predicted_against_observed(rng.normal(size=5000), np.zeros(5000), np.ones(5000))
    assert "90 % in the 90 % bars" in axes.get_title()
    with pytest.raises(ValueError, match="std must be positive"):
        dg.plots.predicted_against_observed(np.zeros(3), np.zeros(3), np.zeros(3))


def test_slices_are_in_the_units_of_the_data(fitted):
    axes = dg.plots.slice_through(fitted, 0)
    mean = axes.get_lines()[-1]
    assert mean.get_xdata().min() > 100 and mean.get_xdata().max() < 110
    np.testing.assert_allclose(mean.get_ydata(), 50 + np.sin(mean.get_xdata()), atol=0.25)
    assert len(axes.get_lines()) == 7
    with pytest.raises(ValueError, match="between 0 and 2"):
        dg.plots.slice_through(fitted, 3)


def test_inputs_with_few_values_are_shown_at_those():
    x = np.random.default_rng(0).integers(0, 2, (50, 1)).astype(float)
    axes = dg.plots.slice_through(dg.GPRegressor(random_state=0, learn=False).fit(x, x[:, 0]))
    assert axes.get_xticks().tolist() == [0.0, 1.0]


def test_the_input_that_matters_has_the_longest_bar(fitted):
    axes = dg.plots.relevance(fitted, names=["a", "b", "c"])
    lengths = {
        label.get_text(): bar.get_width() for label, bar in zip(axes.get_yticklabels(), axes.patches, strict=True)
    }
    assert max(lengths, key=lengths.get) == "a"
    model = dg.GaussianProcess(dg.RBF() + dg.Matern32(), 0.1)
    post = model.condition(np.zeros((3, 1)), np.zeros(3), num_samples=0)
    with pytest.raises(ValueError, match="no lengthscale"):
        dg.plots.relevance(post)


def test_other_things_are_not_plotted():
    with pytest.raises(TypeError, match="Posterior or a fitted GPRegressor"):
        dg.plots.convergence(dg.GPRegressor())


def test_the_columns_that_made_the_data_matter_and_look_like_it():
    from dualgp.sklearn.effects import effect, importances

    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.uniform(0, 3, 250), "idle": rng.normal(size=250)})
    frame["c"] = rng.choice(["u", "v", "w"], 250)
    y = 3.0 * frame.a + 5.0 * (frame.c == "w") + 0.1 * rng.normal(size=250)
    regressor = dg.GPRegressor(random_state=0).fit(frame, y)
    found = importances(regressor, frame, y)
    assert list(found)[2] == "idle" and found["idle"] < 0.05 and found["a"] > 1.0 and found["c"] > 1.0
    along, levels = effect(regressor, "a"), effect(regressor, "c")
    np.testing.assert_allclose(np.polyfit(along.values, along.mean, 1)[0], 3.0, atol=0.1)
    assert levels.values == ["u", "v", "w"]
    np.testing.assert_allclose(levels.mean - levels.mean[0], [0.0, 0.0, 5.0], atol=0.2)
    with pytest.raises(ValueError, match="no column 'd'"):
        effect(regressor, "d")
    assert [label.get_text() for label in dg.plots.effect_of(regressor, "c").get_yticklabels()] == ["u", "v", "w"]
    assert len(dg.plots.importance(regressor).patches) == 3
