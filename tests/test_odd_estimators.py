"""Odd noises, targets and frames of models that have several outputs, rows of their own noise, or text."""

import jax
import numpy as np
import pytest
import scipy.sparse

import dualgp as dg
from cases import data

KEY = jax.random.key(0)
X, Y = data(24)
KERNEL = dg.Matern32(1.0)
POSITIVE = np.abs(Y) + 0.1
ODD_NOISES = {
    "text": "abc",
    "words": np.array(["a"] * 24),
    "None among numbers": np.where(POSITIVE > 1, None, POSITIVE),
    "a dict": {"a": 1.0},
    "ragged": [[1.0], [1.0, 2.0]],
    "datetimes": np.datetime64("2020-01-01") + np.arange(24),
    "masked": np.ma.masked_array(POSITIVE, mask=POSITIVE > 1),
}


def regressor(**settings):
    return dg.GPRegressor(
        **{"kernel": KERNEL, "noise": 0.01, "learn": False, "n_samples": 3, "random_state": 0} | settings
    )


@pytest.fixture(scope="module")
def exact():
    return dg.GaussianProcess(KERNEL, 0.01).condition(X, Y, num_samples=3, num_features=64, key=KEY)


@pytest.mark.parametrize("odd", ODD_NOISES)
@pytest.mark.parametrize(
    "use",
    [
        lambda post, noise: post.predict(X, noise=noise),
        lambda post, noise: post.covariance(X, noise=noise),
        lambda post, noise: post.log_prob(X, Y, noise=noise),
        lambda post, noise: post.update(X, Y, noise=noise, key=KEY),
        lambda post, noise: post.model.condition(X, Y, noise=noise, num_samples=0),
    ],
    ids=["predict", "covariance", "log_prob", "update", "condition"],
)
def test_noise_that_is_no_numbers_gets_a_sentence(use, odd, exact):
    with pytest.raises((ValueError, TypeError), match=r"noise.*(real numbers|rectangular|times|masked)"):
        use(exact, ODD_NOISES[odd])


@pytest.mark.parametrize("scale", [5e-324, 1e-160])
def test_learning_from_targets_that_vary_too_little_gets_a_sentence(scale):
    with pytest.raises(ValueError, match=r"y varies by .* too little"):
        dg.learn(dg.GaussianProcess(KERNEL, 0.01), X, np.sign(Y) * scale)


def test_sparse_targets_of_several_outputs_get_a_sentence():
    both = np.stack([Y, -Y], axis=1)
    with pytest.raises(TypeError, match="y is sparse"):
        regressor().fit(X, both).update(X, scipy.sparse.csr_matrix(both))


@pytest.mark.parametrize("column", [[2**70, *range(23)], [1, "a", None, 2.5] * 6], ids=["2^70", "mixed"])
@pytest.mark.parametrize("entry", ["fit", "update", "predict"])
def test_frames_that_no_table_can_be_made_of_get_a_sentence(entry, column):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    good = pandas.DataFrame({"a": X[:, 0], "b": ["up", "down"] * 12})
    fitted = regressor(kernel=None).fit(good, Y)
    with pytest.raises(ValueError, match=r"The DataFrame is no table .* one kind of value"):
        getattr(fitted, entry)(good.assign(a=column), *([Y] if entry != "predict" else []))


@pytest.mark.parametrize("column", [[[1.0, 2.0]] * 24, [{"a": 1}] * 24], ids=["lists", "dicts"])
def test_columns_of_text_that_hold_something_else_are_named(column):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    good = pandas.DataFrame({"a": X[:, 0], "b": ["up", "down"] * 12})
    with pytest.raises(ValueError, match=r"'b' held text in the fitted table, and (list|struct)"):
        regressor(kernel=None).fit(good, Y).predict(good.assign(b=column))


def test_a_series_of_text_gets_a_sentence():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="X holds text in column 'b'"):
        regressor().fit(pandas.Series(["up", "down"] * 12, name="b"), Y)
