"""The formulas, against scikit-learn's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import dualgp as dg
from cases import PER_DIMENSION, STATIONARY, gram, points
from dualgp._arrays import wide

NU = {dg.Matern12: 0.5, dg.Matern32: 1.5, dg.Matern52: 2.5}
each_class = pytest.mark.parametrize("kernel_class", STATIONARY)
each_lengthscale = pytest.mark.parametrize("lengthscale", [0.37, PER_DIMENSION], ids=["one", "many"])


def sklearn_kernel(kernel_class, lengthscale):
    return sk.RBF(lengthscale) if kernel_class is dg.RBF else sk.Matern(lengthscale, nu=NU[kernel_class])


@each_class
@each_lengthscale
def test_kernel_equals_scikit_learns(kernel_class, lengthscale):
    x1, x2 = points(40), points(25, seed=1)
    expected = 1.7 * sklearn_kernel(kernel_class, lengthscale)(x1, x2)
    np.testing.assert_allclose(gram(kernel_class(lengthscale, 1.7), x1, x2), expected, atol=1e-12, rtol=0)


@each_class
@each_lengthscale
def test_dense_operator_matrix_equals_scikit_learns(kernel_class, lengthscale):
    x = points(40)
    expected = 1.7 * sklearn_kernel(kernel_class, lengthscale)(x) + 0.25 * np.eye(len(x))
    matrix = dg.KernelOperator(kernel_class(lengthscale, 1.7), x, 0.25).dense()
    np.testing.assert_allclose(matrix, expected, atol=1e-12, rtol=0)


@each_class
def test_far_apart_points_are_not_similar_and_equal_ones_have_the_variance(kernel_class):
    kernel = kernel_class(0.5, 2.5)
    block = np.asarray(kernel(np.float32([[0.0, 0.0]]), np.float32([[0.0, 0.0], [1e4, -1e4]])))
    assert block.tolist() == [[2.5, 0.0]]


@each_class
def test_an_infinite_lengthscale_ignores_the_column(kernel_class):
    x = points(20)
    ignoring = gram(kernel_class([0.6, np.inf, 1.4]), x)
    np.testing.assert_allclose(ignoring, gram(kernel_class([0.6, 1.4]), x[:, [0, 2]]), atol=1e-13)
    phi = kernel_class([0.6, np.inf, 1.4]).features(jax.random.key(0), 256, 3)
    np.testing.assert_array_equal(phi(x.astype(np.float32)), phi(np.float32(x * [1, 7, 1])))


@each_class
@pytest.mark.parametrize("d", [2, 6])
def test_gradients_at_distance_zero_are_finite(kernel_class, d):
    x = np.repeat(points(5, d, dtype=np.float32), 2, axis=0)
    weights = jnp.arange(100.0, dtype=jnp.float32).reshape(10, 10)

    def value(x1, x2, lengthscale, variance):
        return jnp.sum(weights * kernel_class(lengthscale, variance)(x1, x2))

    gradients = jax.grad(value, argnums=(0, 1, 2, 3))(x, x, jnp.full(d, 0.5), jnp.float32(1.3))
    assert all(np.isfinite(g).all() for g in gradients)
    assert all(np.abs(g).max() > 0 for g in gradients)


@each_class
def test_gradient_equals_finite_differences(kernel_class):
    x, x0 = points(6), points(1, seed=3)[0]

    def value(point, lengthscale):
        return jnp.sum(jnp.arange(6.0) * kernel_class(lengthscale, 0.8)(point[None], jnp.asarray(x))[0])

    def slope(function, at):
        steps = 1e-6 * np.eye(len(at))
        return [(function(at + step) - function(at - step)) / 2e-6 for step in steps]

    scale = np.asarray(PER_DIMENSION)
    with wide():
        by_point, by_scale = jax.grad(value, argnums=(0, 1))(jnp.asarray(x0), jnp.asarray(scale))
        np.testing.assert_allclose(by_point, slope(lambda p: value(jnp.asarray(p), scale), x0), atol=1e-7)
        np.testing.assert_allclose(by_scale, slope(lambda s: value(jnp.asarray(x0), s), scale), atol=1e-7)


@each_class
def test_kernel_shows_its_hyperparameters(kernel_class):
    assert repr(kernel_class(0.5, 2.0)) == f"{kernel_class.__name__}(lengthscale=0.5, variance=2)"
