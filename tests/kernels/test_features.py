"""Random features: the algebra, and the multivariate t of the Matern kernels."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, PER_DIMENSION, gram, inputs, points
from dualgp._arrays import wide

OFF_AXIS = np.float32([[0.0, 0.0, 0.0], [0.6, 0.6, 0.6]])
NUM = 8192


def feature_value(kernel, key):
    phi = kernel.features(key, NUM, 3)(OFF_AXIS)
    return float(phi[0] @ phi[1])


@pytest.mark.parametrize("kernel_class", [dg.Matern12, dg.Matern32, dg.Matern52])
def test_matern_features_use_one_chi_square_per_frequency(kernel_class):
    kernel = kernel_class(1.0)
    values = np.array([feature_value(kernel, key) for key in jax.random.split(jax.random.key(0), 16)])
    error = values.std(ddof=1) / np.sqrt(len(values))
    isotropic = gram(kernel, OFF_AXIS)[0, 1]
    one_per_dimension = gram(kernel, OFF_AXIS[:, :1])[0, 1] ** 3
    assert abs(isotropic - one_per_dimension) > 10 * error  # else this test could not tell them apart
    assert abs(values.mean() - isotropic) < 4.5 * error


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_features_of_a_point_have_the_prior_variance_as_squared_norm(kernel):
    x = inputs(kernel, points(10, dtype=np.float32))
    phi = np.asarray(kernel.features(jax.random.key(1), 256, 3)(x))
    np.testing.assert_allclose(np.sum(phi**2, axis=1), kernel.diagonal(x), rtol=1e-5)


def test_features_count_their_columns():
    x, key = points(4, dtype=np.float32), jax.random.key(0)
    single, double = dg.RBF(), dg.RBF() + 2.0 * dg.Matern32(PER_DIMENSION)
    for kernel, num in ((single, 256), (double, 512), (single * single, 256), (double * single, 512)):
        phi = kernel.features(key, 256, 3)
        assert phi.num == num
        assert phi(x).shape == (4, num)


def test_features_mean_the_same_function_in_both_precisions():
    x = points(20)
    phi = dg.Matern32(0.7).features(jax.random.key(0), 256, 3)
    with jax.enable_x64(True):
        double = np.asarray(phi(x))
    assert double.dtype == np.float64
    np.testing.assert_allclose(phi(x.astype(np.float32)), double, atol=1e-4)


def test_the_two_factors_of_a_squared_kernel_have_their_own_frequencies():
    (phi,) = (dg.RBF() * dg.RBF()).features(jax.random.key(0), NUM, 3).terms
    mean_square = np.sum(phi.weights[:, None] * phi.omega**2) / 3
    assert abs(mean_square - 2.0) < 0.3  # 4 if both were the same draws


def test_resampled_features_average_to_those_they_come_from():
    x = points(6, dtype=np.float32)
    phi = (dg.RBF() + dg.Matern12(PER_DIMENSION)).features(jax.random.key(0), 512, 3)

    def product(key):
        fewer = phi.resampled(key, 64)(x)
        return fewer @ fewer.T

    products = jax.jit(jax.vmap(product))(jax.random.split(jax.random.key(1), 300))
    error = np.std(products, axis=0) / np.sqrt(len(products))
    assert (np.abs(np.mean(products, axis=0) - phi(x) @ phi(x).T) <= 4.5 * error + 1e-4).all()


@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        (dg.Matern32(0.3), 0.01),
        (dg.RationalQuadratic(0.3, power=0.5), 0.01),
        (dg.Laplace(1.0), 0.04),  # plain draws: 3 to 8 %
        (dg.Periodic(0.1, period=0.7), 0.04),  # 2 to 6 %
    ],
)
def test_features_hold_the_high_frequencies_that_posterior_variances_are_made_of(kernel, error):
    # Where data are dense, what stays uncertain is the tail of the spectrum: plain draws miss it by 5 to 30 %.
    noise = 1e-3
    rng = np.random.default_rng(0)
    x, x_new = rng.uniform(size=(1500, 2)), rng.uniform(size=(100, 2))
    smoother = np.linalg.solve(gram(kernel, x) + noise * np.eye(len(x)), gram(kernel, x, x_new))
    exact = 1.0 - np.einsum("ij,ij->j", gram(kernel, x, x_new), smoother)
    for seed in range(3):
        with wide():
            phi = kernel.features(jax.random.key(seed), 4096, 2)
            deviation = np.asarray(phi(x_new)) - smoother.T @ np.asarray(phi(x))
        variance = (deviation**2).sum(axis=1) + noise * (smoother**2).sum(axis=0)
        assert abs(np.sqrt(variance / exact).mean() - 1.0) < error
