"""Unusual input works as a user would expect or gets one clear sentence. Nothing returns NaN."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import data, exact_posterior, points

KEY = jax.random.key(0)
X, Y = data(40)
MODEL = dg.GaussianProcess(dg.Matern32(0.8), noise=0.1)
SOLVERS = {
    "Cholesky": dg.Cholesky(),
    "SDD": dg.SDD(num_steps=2000, averaging=0.05, tol=1e-3),
    "BlockDescent": dg.BlockDescent(tol=1e-3),
}
each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def condition(x=X, y=Y, model=MODEL, **settings):
    return model.condition(x, y, **{"num_samples": 3, "num_features": 64, "key": KEY, **settings})


def with_value(array, value):
    changed = np.array(array)
    changed.flat[4] = value
    return changed


def assert_sound(post, x_new):
    for answer in (*post.predict(x_new), post.samples(x_new), post.log_prob(x_new, np.zeros(len(x_new)))):
        assert np.isfinite(answer).all()
    assert np.isfinite(post.error_bound()) and "nan" not in post.report()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: condition(x=with_value(X, np.nan)), r"x has 1 NaN or infinite value\(s\), the first at x\[1, 1\]"),
        (lambda: condition(x=with_value(X, np.inf)), "x has 1 NaN or infinite"),
        (lambda: condition(y=with_value(Y, np.nan)), r"y has 1 NaN or infinite value\(s\), the first at y\[4\]"),
        (lambda: condition(y=with_value(Y, -np.inf)), "Drop or impute those rows"),
        (lambda: condition(x=with_value(X, 1e100), dtype=np.float32), "x in the operator's precision has 1"),
        (lambda: condition(y=with_value(Y, 1e100), dtype=np.float32), "has 1 NaN or infinite"),
        (lambda: condition(y=Y[:-1]), r"y has 39 value\(s\) for 40 row\(s\) of x"),
        (lambda: condition(y=np.stack([Y, Y])), "Pass one row of targets for each"),
        (lambda: condition(y=np.stack([Y, Y])[None]), r"y must have shape \(n,\), got \(1, 2, 40\)"),
        (lambda: condition(x=X[:0], y=Y[:0]), "x has no rows"),
        (lambda: condition(x=X[:, :0]), "x has no columns"),
        (lambda: condition(x=X[None]), r"x must have shape \(points, dimensions\), got \(1, 40, 3\)"),
        (lambda: condition(x=[[1.0, 2.0], [3.0]]), "not a rectangular array"),
        (lambda: condition(num_samples=-1), "num_samples must be a whole number"),
        (lambda: condition(num_features=1), "num_features must be a whole number of at least 2"),
        (lambda: condition(key=None), r"needs randomness: pass key=jax.random.key\(0\)"),
        (lambda: condition(num_samples=0, key=None, solver=dg.SDD()), r"SDD needs randomness: pass key"),
        (lambda: condition(dtype=np.int32), "dtype must be float32 or float64"),
        (lambda: condition(max_seconds=0.0), "max_seconds must be positive"),
        (lambda: condition(max_passes=-1.0), "max_passes must be positive"),
        (lambda: condition(model=dg.GaussianProcess(dg.RBF([1.0, 2.0]), 0.1)), "2 lengthscales, but x has 3 columns"),
        (lambda: dg.GaussianProcess(dg.RBF(), noise=0.0), r"noise \(a variance\) must be positive .* 1e-6 times"),
        (lambda: dg.GaussianProcess(dg.RBF(), noise=-0.1), "must be positive and finite, got -0.1"),
        (lambda: dg.GaussianProcess(dg.RBF(), noise=np.nan), "must be positive and finite, got nan"),
        (lambda: dg.GaussianProcess(dg.RBF(), noise=np.ones(40)), "noise must be one number"),
        (lambda: dg.GaussianProcess(dg.RBF(), 0.1, mean=np.nan), "mean has 1 NaN"),
        (lambda: dg.GaussianProcess(dg.RBF(), 0.1, mean=np.zeros((2, 2))), "mean must be one number, or one for each"),
        (lambda: dg.KernelOperator(dg.RBF(), X, 0.0), r"noise \(a variance\) must be positive"),
        (lambda: dg.RBF(0.0), "RBF's lengthscale must be positive"),
        (lambda: dg.Matern12([1.0, -2.0]), "Matern12's lengthscale must be positive"),
        (lambda: dg.Matern52(np.nan), "Matern52's lengthscale must be positive"),
        (lambda: dg.RBF([]), "RBF's lengthscale must be positive"),
        (lambda: dg.Matern32(1.0, 0.0), "Matern32's variance must be positive"),
        (lambda: dg.Matern32(np.ones((2, 2))), "lengthscale that is a number or one per dimension"),
        (
            lambda: dg.solve(dg.KernelOperator(dg.RBF(), X, 0.1), Y[:-1]),
            r"b has shape \(39,\), but the operator has 40",
        ),
        (lambda: dg.solve(dg.KernelOperator(dg.RBF(), X, 0.1), with_value(Y, np.nan)), "b has 1 NaN"),
        (lambda: dg.solve(dg.KernelOperator(dg.RBF(), X, 0.1), Y, start=np.zeros((40, 2))), "start has shape"),
    ],
)
def test_impossible_input_gets_one_clear_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: condition(x=[["a", "b"]], y=[1.0]), "x must hold real numbers"),
        (lambda: condition(y=Y + 1j), "y must hold real numbers, got dtype complex128"),
        (lambda: condition(x=np.array([[None, 1.0]]), y=[1.0]), "x must hold real numbers, got dtype object"),
        (lambda: condition(solver="cholesky"), "solver must be 'auto' or a solver such as SDD"),
    ],
)
def test_input_of_the_wrong_kind_gets_one_clear_sentence(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


@pytest.mark.parametrize("method", ["mean", "std", "samples", "error_bound", "log_prob", "update"])
@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (points(5, 2), r"x has 2 column\(s\), but the model was built on 3"),
        (points(5, 3)[0], r"For one point, pass x\[None, :\]"),
        (with_value(points(5, 3), np.nan), "x has 1 NaN"),
    ],
)
def test_impossible_test_points_get_one_clear_sentence(method, x, sentence):
    targets = (np.zeros(len(x)),) if method in ("log_prob", "update") else ()
    with pytest.raises(ValueError, match=sentence):
        getattr(condition(), method)(x, *targets)


def test_missing_samples_are_explained():
    post = condition(num_samples=0, solver=SOLVERS["SDD"], neighbours=0)
    with pytest.raises(ValueError, match="has no samples"):
        _ = post.samples
    with pytest.raises(ValueError, match="comes from samples"):
        post.std(X)


@each_solver
def test_one_row_is_enough(solver):
    post = condition(X[:1], Y[:1], solver=solver)
    assert_sound(post, X)
    np.testing.assert_allclose(post.mean(X)[0], Y[0] / 1.1, rtol=0.01)


@each_solver
def test_duplicate_rows_and_constant_columns_work(solver):
    x = np.concatenate([X[:20], X[:20]])
    x[:, 2] = 5.0
    post = condition(x, solver=solver)
    assert_sound(post, x)
    np.testing.assert_allclose(post.mean(x), exact_posterior(MODEL.kernel, 0.1, x, Y, x).mean, atol=0.01)


@each_solver
def test_identical_rows_and_constant_targets_work(solver):
    assert_sound(condition(np.ones((40, 3)), np.full(40, 2.0), solver=solver), X)
    assert_sound(condition(y=np.zeros(40), solver=solver), X)


@each_solver
def test_integer_and_one_dimensional_inputs_work(solver):
    integers = np.arange(20)
    post = condition(integers, integers % 3, solver=solver)
    assert_sound(post, integers)
    np.testing.assert_allclose(post.mean(integers), post.mean(integers[:, None].astype(float)))
    assert condition(X, Y[:, None], solver=solver).mean(X).shape == (40,)


@each_solver
def test_no_samples_and_no_test_points_work(solver):
    post = condition(num_samples=0, solver=solver)
    assert np.isfinite(post.mean(X)).all()
    for few in (post, condition(solver=solver)):
        assert few.mean(X[:0]).shape == (0,)
    assert few.std(X[:0]).shape == (0,)
    assert few.samples(X[:0]).shape == (3, 0)
    assert few.error_bound(X[:0]).shape == (0,)


@pytest.mark.parametrize("scale", [1e-30, 1e15])
def test_targets_of_any_size_work_in_float32(scale):
    post = condition(X.astype(np.float32), (Y * scale).astype(np.float32), solver=SOLVERS["SDD"], num_samples=0)
    np.testing.assert_allclose(post.mean(X) / scale, condition(num_samples=0).mean(X), atol=0.02)


@pytest.mark.parametrize(("dtype", "d", "offset", "error"), [(np.float64, 3, 1e6, 1e-6), (np.float32, 5, 2e3, 1e-2)])
def test_inputs_far_from_the_origin_work(dtype, d, offset, error):
    x, y = data(40, d)
    x = (x + offset).astype(dtype)
    expected = exact_posterior(MODEL.kernel, 0.1, x, y, x).mean
    np.testing.assert_allclose(condition(x, y, num_samples=0).mean(x), expected, atol=error)
