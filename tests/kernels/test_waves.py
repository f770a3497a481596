"""Sine and cosine of random features, checked against NumPy's in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dualgp.kernels.waves import sine_and_cosine


def phases(scale):
    return jnp.asarray(scale * np.random.default_rng(0).normal(size=20_000), jnp.float32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3, 1e5])
def test_in_float32_both_are_right_to_rounding_of_the_phase(scale):
    phase = phases(scale)
    for values, function in zip(jax.jit(sine_and_cosine)(phase), (np.sin, np.cos), strict=True):
        expected = function(np.asarray(phase, float))
        assert values.dtype == np.float32
        assert np.all(np.abs(values - expected) <= 1.5e-7 + np.spacing(np.abs(phase)) / 2 * (scale > 30))


@pytest.mark.parametrize("scale", [1e8, 1e20, 1e37])
def test_phases_without_digits_stay_on_the_circle(scale):
    sine, cosine = sine_and_cosine(phases(scale))
    np.testing.assert_allclose(np.square(sine) + np.square(cosine), 1, atol=1e-5)


def test_near_whole_quarters_no_value_jumps():
    turns = np.arange(-40, 40)[:, None] * np.pi / 4
    phase = jnp.asarray(turns + np.linspace(-1e-6, 1e-6, 9), jnp.float32)
    for values, expected in zip(sine_and_cosine(phase), (np.sin, np.cos), strict=True):
        np.testing.assert_allclose(values, expected(np.asarray(phase, float)), atol=2e-7)


def test_derivatives_of_every_order_are_each_other():
    def sine(phase):
        return sine_and_cosine(phase)[0]

    for phase in (-2.3, 0.0, 0.7854, 5.0):
        first, second, third = jax.grad(sine), jax.grad(jax.grad(sine)), jax.grad(jax.grad(jax.grad(sine)))
        found = [float(derivative(jnp.float32(phase))) for derivative in (first, second, third)]
        np.testing.assert_allclose(found, [np.cos(phase), -np.sin(phase), -np.cos(phase)], atol=1e-6)
