"""The rational quadratic kernel: against scikit-learn, its limits, its frequencies, its power as a parameter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import dualgp as dg
from cases import PER_DIMENSION, gram, points
from dualgp._arrays import wide


@pytest.mark.parametrize("power", [0.1, 1.0, 30.0])
def test_kernel_equals_scikit_learns(power):
    x1, x2 = points(40), points(25, seed=1)
    expected = 1.7 * sk.RationalQuadratic(0.6, power)(x1, x2)
    np.testing.assert_allclose(gram(dg.RationalQuadratic(0.6, 1.7, power), x1, x2), expected, atol=1e-12)
    scaled = dg.RationalQuadratic(PER_DIMENSION, 1.0, power)
    expected = sk.RationalQuadratic(1.0, power)(x1 / PER_DIMENSION, x2 / PER_DIMENSION)
    np.testing.assert_allclose(gram(scaled, x1, x2), expected, atol=1e-12)


def test_with_a_large_power_it_is_rbf_in_both_precisions():
    x, kernel = points(30), dg.RationalQuadratic(0.7, 1.3, 1e9)
    np.testing.assert_allclose(gram(kernel, x), gram(dg.RBF(0.7, 1.3), x), atol=1e-7)
    single = x.astype(np.float32)
    np.testing.assert_allclose(kernel(single, single), gram(dg.RBF(0.7, 1.3), x), atol=1e-5)


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("power", [0.05, 0.5, 5.0, 1e4])
def test_frequencies_are_as_long_as_draws_of_their_definition(power, d):
    rng, num = np.random.default_rng(0), 200_000
    drawn = np.sqrt(rng.gamma(power, 1 / power, num) * rng.chisquare(d, num))
    tail = np.array([0.001, 0.01, 0.1, 0.3])
    length = dg.RationalQuadratic(power=power).frequency_length(tail, d)
    found = (drawn[:, None] > length).mean(axis=0)
    assert (np.abs(found - tail) < 4.5 * np.sqrt(tail / num)).all()


def test_second_derivatives_at_equal_points():
    with wide():
        point = jnp.asarray(points(1))
        hessian = jax.hessian(lambda x: dg.RationalQuadratic(0.5, 1.2, 0.7)(x[None], point)[0, 0])(point[0])
    np.testing.assert_allclose(hessian, -1.2 / 0.25 * np.eye(3), atol=1e-9)


def test_the_power_is_a_learned_parameter_with_a_prior_of_its_own():
    x = points(150, 1)
    true = gram(dg.RationalQuadratic(0.3, 1.0, 0.3), x) + 0.01 * np.eye(150)
    y = np.linalg.cholesky(true) @ np.random.default_rng(0).normal(size=150)
    model = dg.GaussianProcess(dg.RationalQuadratic(1.0, 1.0, 5.0), 0.1)
    learned = [dg.learn(model, x, units * y).model.kernel for units in (1.0, 1e3)]
    assert 0.02 < float(learned[0].power) < 2.0
    np.testing.assert_allclose(*(float(kernel.power) for kernel in learned), rtol=0.05)


@pytest.mark.parametrize("power", [0.0, -1.0, np.inf, [1.0, 2.0]])
def test_powers_that_cannot_be_are_refused(power):
    with pytest.raises(ValueError, match="power must be"):
        dg.RationalQuadratic(power=power)
