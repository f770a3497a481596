"""Second derivatives at data points, where a point meets itself, against a formula without square roots of zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from dualgp._arrays import wide

# d^2 k / dx^2 at x = x', at unit lengthscale and variance: 2 k'(0) I, where k' is the derivative by r^2
CURVATURE = {dg.RBF: -1.0, dg.Matern32: -3.0, dg.Matern52: -5.0 / 3.0}


@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize("kind", CURVATURE)
def test_of_a_kernel_at_equal_points(kind, d):
    with wide():
        point = jnp.asarray(np.random.default_rng(0).normal(size=(1, d)))
        hessian = jax.hessian(lambda x: kind()(x[None], point)[0, 0])(point[0])
    np.testing.assert_allclose(hessian, CURVATURE[kind] * np.eye(d), atol=1e-6)


@pytest.mark.parametrize("kind", CURVATURE)
def test_of_a_mean_at_a_data_point(kind):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (60, 2))
    post = dg.GaussianProcess(kind(), noise=0.01).condition(x, np.sin(2 * x[:, 0]) + np.cos(x[:, 1]), num_samples=0)
    with wide():
        mean = lambda p: post.mean(p[None])[0]
        point, step = jnp.asarray(x[0]), 1e-4
        slope = jax.grad(mean)
        expected = [(slope(point + step * e) - slope(point - step * e)) / (2 * step) for e in np.eye(2)]
        found = jax.hessian(mean)(point)
    # Matern-3/2 has a kink in its second derivative there: differences see a little of both sides.
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-2 if kind is dg.Matern32 else 1e-4)


@pytest.mark.parametrize("kind", [*CURVATURE, dg.Matern12])
def test_kernels_take_whole_numbers(kind):
    numbers = np.array([[0], [1], [3]], np.uint8)
    expected = kind(0.7, 0.5)(numbers.astype(np.float32), numbers.astype(np.float32))
    np.testing.assert_allclose(kind(0.7, 0.5)(numbers, numbers), expected, rtol=1e-6)
