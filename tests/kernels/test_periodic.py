"""Circles: against scikit-learn, over many periods, and with the Fourier series as features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import dualgp as dg
from cases import gram, points
from dualgp._arrays import wide
from dualgp.kernels.periodic import _harmonic


def test_kernel_equals_scikit_learns_with_the_lengthscale_in_other_units():
    x1, x2 = points(40, 1), points(25, 1, seed=1)
    ours = dg.Periodic(0.8 * 1.7 / (2 * np.pi), 1.3, 1.7)
    np.testing.assert_allclose(gram(ours, x1, x2), 1.3 * sk.ExpSineSquared(0.8, 1.7)(x1, x2), atol=1e-12)


def test_of_many_inputs_it_is_the_product():
    x, scales, periods = points(20, 2), [0.3, 0.9], [1.5, 4.0]
    each = [dg.On(dg.Periodic(scales[i], 1.0, periods[i]), i, i + 1) for i in range(2)]
    np.testing.assert_allclose(gram(dg.Periodic(scales, 1.0, periods), x), gram(each[0] * each[1], x), rtol=1e-12)


def test_with_a_long_period_it_is_rbf():
    x = points(30)
    np.testing.assert_allclose(gram(dg.Periodic(0.7, 1.0, 1e5), x), gram(dg.RBF(0.7), x), atol=1e-8)


def test_a_whole_number_of_periods_changes_nothing():
    x, kernel = points(20, 1), dg.Periodic(0.2, 1.0, 0.7)
    np.testing.assert_allclose(gram(kernel, x + 100 * 0.7, x), gram(kernel, x), atol=1e-10)


def test_years_in_float32_keep_their_digits_where_they_are_near():
    x = (2000.0 + np.arange(200) / 64.0).astype(np.float32)[:, None]
    values = np.asarray(dg.Periodic(0.02, 1.0, 1.0)(x, x))
    np.testing.assert_allclose(values, gram(dg.Periodic(0.02, 1.0, 1.0), x), atol=1e-4)
    phi = np.asarray(dg.Periodic(0.2, 1.0, 1.0).coordinates(x))
    np.testing.assert_allclose(np.linalg.norm(phi, axis=1), 1.0 / (2 * np.pi * 0.2), rtol=1e-5)


@pytest.mark.parametrize("radius", [0.0, 0.1, 1.0, 7.0, 60.0])
def test_harmonics_have_the_fourier_coefficients_as_probabilities(radius):
    tail = (np.arange(200_000) + 0.5) / 200_000
    drawn = _harmonic(tail, radius)
    for angle in (0.0, 0.3, 2.0, np.pi):
        expected = np.exp(-2.0 * (radius * np.sin(angle / 2.0)) ** 2)
        np.testing.assert_allclose(np.cos(drawn * angle).mean(), expected, atol=2e-4)


def test_features_repeat_with_the_period():
    x = points(10, 2, dtype=np.float32)
    phi = dg.Periodic(0.3, 1.0, [0.5, 2.0]).features(jax.random.key(0), 128, 2)
    np.testing.assert_allclose(phi(x), phi(x + np.float32([1.5, -2.0])), atol=2e-3)


def test_derivatives_are_finite_and_right_at_equal_points():
    with wide():
        point = jnp.asarray(points(1, 2))
        hessian = jax.hessian(lambda x: dg.Periodic([0.5, 0.8], 1.2, [1.0, 3.0])(x[None], point)[0, 0])(point[0])
    np.testing.assert_allclose(hessian, -1.2 * np.diag([1 / 0.25, 1 / 0.64]), atol=1e-9)
    x = np.repeat(points(4, 2, dtype=np.float32), 2, axis=0)
    total = lambda scale, period: jnp.sum(dg.Periodic(scale, 1.0, period)(x, x))
    slopes = jax.grad(total, argnums=(0, 1))(jnp.full(2, 0.5), jnp.full(2, 1.5))
    assert all(np.isfinite(slope).all() and np.abs(slope).max() > 0 for slope in slopes)


def test_the_slope_by_the_period_is_that_of_differences():
    x = points(12, 1)
    with wide():
        total = lambda period: jnp.sum(jnp.cos(jnp.arange(144.0)).reshape(12, 12) * dg.Periodic(0.4, 1.0, period)(x, x))
        slope, step = float(jax.grad(total)(jnp.asarray(1.3))), 1e-6
        expected = (float(total(jnp.asarray(1.3 + step))) - float(total(jnp.asarray(1.3 - step)))) / (2 * step)
    assert slope == pytest.approx(expected, rel=1e-6)


def test_a_period_that_is_nearly_known_is_learned_from_data():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 200)
    y = np.sin(2 * np.pi * x / 1.25) + np.cos(4 * np.pi * x / 1.25) + 0.1 * rng.normal(size=200)
    learned = dg.learn(dg.GaussianProcess(dg.Periodic(0.3, 1.0, 1.27), 0.1), x, y)
    assert float(learned.model.kernel.period) == pytest.approx(1.25, rel=2e-3)
    assert float(learned.model.noise) == pytest.approx(0.01, rel=0.5)


@pytest.mark.parametrize(
    ("period", "message"), [(0.0, "positive"), (np.inf, "finite"), (np.ones((2, 2)), "one per dim")]
)
def test_periods_that_cannot_be_are_refused(period, message):
    with pytest.raises(ValueError, match=message):
        dg.Periodic(1.0, 1.0, period)


def test_as_many_periods_as_columns():
    with pytest.raises(ValueError, match="Periodic has 2 periods, but x has 3 columns"):
        gram(dg.Periodic(1.0, 1.0, [1.0, 2.0]), points(5))
