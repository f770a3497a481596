"""The 1-norm: distances to all digits, derivatives, memory, and trees' axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import laplacian_kernel

import dualgp as dg
from cases import PER_DIMENSION, gram, points
from dualgp._arrays import wide
from dualgp.kernels.distances import absolute_distances

LAPLACE = dg.Laplace(PER_DIMENSION, 1.3)


def test_kernel_equals_scikit_learns():
    x1, x2 = points(30), points(20, seed=1)
    np.testing.assert_allclose(gram(dg.Laplace(0.8, 1.7), x1, x2), 1.7 * laplacian_kernel(x1, x2, gamma=1 / 0.8))
    np.testing.assert_allclose(
        gram(LAPLACE, x1, x2), 1.3 * np.exp(-cdist(x1 / PER_DIMENSION, x2 / PER_DIMENSION, "cityblock"))
    )


def test_with_one_input_it_is_matern_12():
    x = points(30, 1)
    np.testing.assert_allclose(gram(dg.Laplace(0.4, 2.0), x), gram(dg.Matern12(0.4, 2.0), x), rtol=1e-12)


def test_it_is_the_product_of_kernels_of_one_input_each():
    x = points(25)
    each = [dg.On(dg.Matern12(scale), i, i + 1) for i, scale in enumerate(PER_DIMENSION)]
    np.testing.assert_allclose(gram(dg.Laplace(PER_DIMENSION), x), gram(each[0] * each[1] * each[2], x), rtol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 8, 21])
def test_distances_in_float32_have_a_relative_error_of_rounding(d):
    a = points(200, d).astype(np.float32) * 100
    b = a + 0.01 * points(200, d, seed=1).astype(np.float32)
    direct = cdist(a.astype(np.float64), b.astype(np.float64), "cityblock")
    np.testing.assert_allclose(absolute_distances(jnp.asarray(a), jnp.asarray(b)), direct, rtol=1e-6 * d**0.5, atol=0)


@pytest.mark.parametrize("d", [3, 21])
def test_derivatives_are_those_of_the_direct_formula(d):
    with wide():
        a, b = jnp.asarray(points(7, d)), jnp.asarray(points(5, d, seed=1))
        weight = jnp.asarray(points(7, 5, seed=2))
        ours = lambda a, b: jnp.sum(weight * jnp.exp(-absolute_distances(a, b)))
        direct = lambda a, b: jnp.sum(weight * jnp.exp(-jnp.sum(jnp.abs(a[:, None] - b), axis=2)))
        for derivative in (jax.grad, jax.hessian, jax.jacfwd):
            for which in (0, 1):
                results = [np.asarray(derivative(function, which)(a, b)) for function in (ours, direct)]
                np.testing.assert_allclose(*results, rtol=1e-9, atol=1e-12)


def test_first_and_second_derivatives_are_finite_at_equal_points_and_on_the_axes():
    x = np.float32([[0.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    value = lambda point: jnp.sum(LAPLACE(point[None], jnp.asarray(x)))
    for derivative in (jax.grad, jax.hessian):
        assert np.isfinite(derivative(value)(jnp.asarray(x[0]))).all()
    by_scale = jax.grad(lambda scale: jnp.sum(dg.Laplace(scale)(x, x)))(jnp.ones(3))
    np.testing.assert_allclose(by_scale, [0.0, 2 * 0.5 * np.exp(-0.5), 0.0], rtol=1e-5)


def test_neither_a_block_nor_its_gradient_holds_a_number_for_each_pair_and_input():
    n, d = 512, 64
    shape = jax.ShapeDtypeStruct((n, d), jnp.float32)
    value = lambda a, b: jnp.sum(absolute_distances(a, b) ** 2)
    for function in (absolute_distances, jax.grad(value, argnums=(0, 1))):
        used = jax.jit(function).lower(shape, shape).compile().memory_analysis().temp_size_in_bytes
        assert used < 12 * n * n * 4  # d n^2 numbers would be 64


def test_an_infinite_lengthscale_ignores_the_column():
    x = points(20)
    kernel = dg.Laplace([0.6, np.inf, 1.4])
    np.testing.assert_allclose(gram(kernel, x), gram(dg.Laplace([0.6, 1.4]), x[:, [0, 2]]), atol=1e-13)
    phi = kernel.features(jax.random.key(0), 256, 3)
    np.testing.assert_array_equal(phi(x.astype(np.float32)), phi(np.float32(x * [1, 7, 1])))


def test_frequencies_are_independent_and_not_those_of_matern():
    corner = np.float32([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5]])

    def value(key):
        phi = dg.Laplace().features(key, 2048, 3)(corner)
        return float(phi[0] @ phi[1])

    values = np.array([value(key) for key in jax.random.split(jax.random.key(0), 16)])
    error = values.std(ddof=1) / np.sqrt(len(values))
    product, isotropic = np.exp(-1.5), np.exp(-0.5 * 3**0.5)
    assert abs(product - isotropic) > 10 * error  # else this test could not tell them apart
    assert abs(values.mean() - product) < 4.5 * error
