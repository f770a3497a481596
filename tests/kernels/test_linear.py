"""Straight lines and constants: against scikit-learn and the textbook's regression."""

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk
from sklearn.linear_model import BayesianRidge, Ridge

import dualgp as dg
from cases import NOISE, data, gram, points

X1, X2 = points(20), points(15, seed=1)


def test_kernels_equal_scikit_learns():
    ours = dg.Linear(1.0, 0.7) + dg.Constant(0.7 * 1.5**2)
    np.testing.assert_allclose(gram(ours, X1, X2), 0.7 * sk.DotProduct(1.5)(X1, X2), atol=1e-12)
    np.testing.assert_allclose(gram(dg.Constant(0.3), X1, X2), sk.ConstantKernel(0.3)(X1, X2))


def test_lengthscales_and_a_centre_are_those_of_shifted_and_scaled_inputs():
    scale, centre = np.array([0.5, 2.0, np.inf]), np.array([1.0, -2.0, 3.0])
    left, right = (((x - centre) / scale) for x in (X1, X2))
    np.testing.assert_allclose(gram(dg.Linear(scale, 0.8, centre), X1, X2), 0.8 * left @ right.T, atol=1e-12)


def test_features_are_exact_and_few():
    kernel = dg.Linear([0.5, 2.0, 1.0], 0.8, 0.3) + dg.Constant(1.1)
    phi = kernel.features(jax.random.key(0), 4096, 3)
    assert phi.num == 3 + 2
    np.testing.assert_allclose(phi(np.float32(X1)) @ phi(np.float32(X2)).T, gram(kernel, X1, X2), atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        dg.Linear(2.0) * dg.Matern32(0.8),
        dg.Matern32(0.8) * dg.Linear(2.0, 1.0, 0.5),
        dg.Linear(1.5) * dg.Linear([1.0, 2.0, 3.0]),
        dg.Constant(0.6) * dg.RBF(0.7),
        (dg.Linear(2.0) + dg.Constant(0.5)) * dg.Periodic(0.5, 1.0, 2.0),
        dg.On(dg.Linear(), 0, 1) * dg.On(dg.Laplace(), 1),
    ],
    ids=repr,
)
def test_features_of_products_average_to_the_kernel(kernel):
    x = 0.7 * points(8, dtype=np.float32)
    maps = [kernel.features(key, 1024, 3) for key in jax.random.split(jax.random.key(0), 32)]
    assert all(phi.num <= 2 * 1024 for phi in maps)
    products = np.stack([np.asarray(phi(x) @ phi(x).T, np.float64) for phi in maps])
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert (np.abs(products.mean(axis=0) - gram(kernel, x)) <= 4.5 * error + 1e-5).all()
    assert error.max() < 0.03
    smaller = [
        phi.resampled(key, 256)(x) for phi, key in zip(maps, jax.random.split(jax.random.key(1), 32), strict=True)
    ]
    products = np.stack([np.asarray(phi @ phi.T, np.float64) for phi in smaller])
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert (np.abs(products.mean(axis=0) - gram(kernel, x)) <= 4.5 * error + 1e-5).all()


def test_the_posterior_of_lines_is_ridge_regression():
    x, y = data(200)
    post = dg.GaussianProcess(dg.Linear(1.0, 0.5), NOISE).condition(x, y, num_samples=0)
    ridge = Ridge(alpha=NOISE / 0.5, fit_intercept=False).fit(x, y)
    np.testing.assert_allclose(post.mean(X2), ridge.predict(X2), atol=1e-8)
    spread = NOISE * np.linalg.inv(x.T @ x + NOISE / 0.5 * np.eye(3))
    np.testing.assert_allclose(post.std(X2) ** 2, np.einsum("ij,jk,ik->i", X2, spread, X2), atol=1e-9)


def test_lines_are_learned_as_by_bayesian_ridge_regression():
    rng = np.random.default_rng(0)
    x = 2000.0 + rng.uniform(-10, 10, (300, 1))
    y = 5.0 + 0.3 * (x[:, 0] - 2000.0) + 0.5 * rng.normal(size=300)
    start = dg.GaussianProcess(dg.Linear(5.0, 1.0, centre=2000.0) + dg.Constant(), 1.0)
    learned = dg.learn(start, x, y)
    assert float(learned.model.noise) == pytest.approx(1 / BayesianRidge().fit(x - 2000, y).alpha_, rel=0.05)
    mean = learned.model.condition(x, y, num_samples=0).mean(np.array([[2030.0]]))
    assert mean[0] == pytest.approx(14.0, abs=0.4)


def test_inputs_far_from_the_centre_are_refused_by_nobody_but_have_no_bound():
    kernel = dg.Linear(1.0, 2.0, 1.0)
    assert kernel.largest_variance() == np.inf
    assert dg.Constant(0.4).largest_variance() == 0.4
    assert not kernel.is_stationary
    np.testing.assert_array_equal(kernel.diagonal(np.float32([[1.0], [3.0]])), [0.0, 8.0])


def test_a_line_and_details_choose_neighbourhoods_by_the_details():
    x, both = points(50), dg.Linear([1e-3, 1.0, 1.0]) + dg.Matern32([1.0, 0.1, 1.0])
    coordinates = np.asarray(both.coordinates(x))
    assert np.ptp(coordinates[:, 0]) == 0.0
    np.testing.assert_allclose(coordinates[:, 1:], dg.Matern32([1.0, 0.1, 1.0]).coordinates(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dg.Linear(-1.0), "Linear's lengthscale must be positive"),
        (lambda: dg.Linear(centre=np.nan), "Linear's centre has"),
        (lambda: dg.Constant([1.0, 2.0]), "must be a number"),
        (lambda: gram(dg.Linear(centre=[1.0, 2.0]), X1), "centre of 2 numbers, but x has 3 columns"),
        (lambda: gram(dg.Linear([1.0, 2.0]), X1), "2 lengthscales, but x has 3 columns"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_kernels_show_their_parameters():
    assert repr(dg.Linear(0.5, 2.0)) == "Linear(lengthscale=0.5, variance=2, centre=0.0)"
    assert repr(dg.Linear([0.5, 1.0], centre=[1, 2])) == "Linear(lengthscale=[0.5, 1], variance=1, centre=(1.0, 2.0))"
    assert repr(dg.Constant(0.5)) == "Constant(variance=0.5)"
