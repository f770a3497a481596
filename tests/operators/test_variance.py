"""Variances from few draws and a known variance of something simpler, checked against those the draws are made with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dualgp.operators.variance import combine_variances


def draws(share, left, num, m=2000):
    """(d, d1) with Var d1 = 2, `share` of it exact variance, and `left` of the neighbours' error still in d."""
    rng = np.random.default_rng(0)
    exact, missing = (rng.normal(size=(m, num)) * np.sqrt(2 * part) for part in (share, 1 - share))
    return exact + left * missing, exact + missing, np.full(m, 2.0), 2 * (share + left**2 * (1 - share))


def errors(share, left, num):
    deviations, simple, variance, true = draws(share, left, num)
    found = combine_variances(deviations, simple, variance)
    assert (found <= variance).all() and (found > 0).all()
    return 0.5 * np.log(found / true)


@pytest.mark.parametrize(("share", "limit"), [(0.5, 0.15), (0.8, 0.07), (0.9, 0.035), (0.97, 0.017), (0.999, 0.004)])
def test_sixteen_draws_know_a_std_well_where_neighbours_know_most(share, limit):
    for left in (0.0, 0.3):  # a far field that has converged, and one that has not
        assert np.sqrt(np.mean(errors(share, left, 16) ** 2)) < limit


@pytest.mark.parametrize("left", [-0.3, 0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_with_many_draws_no_dependence_deceives(share, left):
    assert abs(np.median(errors(share, left, 2000))) < 0.015


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_it_is_never_much_worse_than_draws_alone(share):
    assert np.sqrt(np.mean(errors(share, 0.0, 16) ** 2)) < 1.1 / np.sqrt(2 * 16)


def test_fewer_than_three_draws_say_nothing():
    deviations, simple, variance, _ = draws(0.5, 0.0, 2)
    assert (combine_variances(deviations, simple, variance) == variance).all()


def test_constant_zeros_and_jit_give_the_same_numbers():
    deviations, simple, variance, _ = draws(0.7, 0.2, 8, m=20)
    deviations[0], simple[1], simple[2], variance[3] = 0, 0, deviations[2], 0
    found = combine_variances(deviations.astype(np.float32), simple.astype(np.float32), variance.astype(np.float32))
    assert np.isfinite(found).all()
    inside = jax.jit(combine_variances)(*(jnp.asarray(array, jnp.float32) for array in (deviations, simple, variance)))
    np.testing.assert_allclose(inside, found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num", [3, 16])
def test_it_is_a_variance_also_where_functions_vary_more_than_they_should(num):
    """As in float32, where neighbours know a point so well that rounding of the functions is all that is left."""
    deviations, simple, variance, _ = draws(0.7, 0.0, num)
    assert np.all(combine_variances(10.0 * deviations, 10.0 * simple, variance) > 0.0)
