"""Squared distances keep near neighbours apart, also in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import dualgp as dg
from cases import block, gram, points
from dualgp._arrays import wide
from dualgp.kernels.distances import distances_from, safe_sqrt, squared_distances

each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_dimension = pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 21])


def distances(a, b, dtype):
    with wide():
        result = jax.jit(squared_distances)(jnp.asarray(a, dtype), jnp.asarray(b, dtype))
    assert result.dtype == dtype
    return np.asarray(result, np.float64)


@each_dtype
@each_dimension
def test_squared_distances_equal_the_direct_formula(d, dtype):
    a, b = (points(n, d, seed).astype(dtype) for n, seed in ((30, 0), (50, 1)))
    direct = cdist(a, b, "sqeuclidean")
    np.testing.assert_allclose(distances(a, b, dtype), direct, atol=20 * np.finfo(dtype).eps * direct.max())


@each_dtype
@each_dimension
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_equal_rows_have_distance_exactly_zero(d, dtype, offset):
    a = (points(40, d) + offset).astype(dtype)
    squared = distances(a, a[::-1], dtype)
    assert (np.fliplr(squared).diagonal() == 0).all()
    assert (squared >= 0).all()


@pytest.mark.parametrize(("d", "careful"), [(1, False), (3, False), (8, False), (9, True), (16, True), (60, True)])
def test_differences_have_a_relative_error_of_rounding(d, careful):
    a = points(200, d).astype(np.float32) * 100
    b = a + 0.01 * points(200, d, seed=1).astype(np.float32)
    squared = np.asarray(distances_from(jnp.asarray(a), jnp.asarray(b), careful)(jnp.asarray(b)))
    direct = cdist(a.astype(np.float64), b.astype(np.float64), "sqeuclidean")
    np.testing.assert_allclose(squared, direct, rtol=1e-6 * d**0.5, atol=0)


@pytest.mark.parametrize("d", [3, 21])
def test_derivatives_are_those_of_the_direct_formula(d):
    with wide():
        a, b = jnp.asarray(points(7, d)), jnp.asarray(points(5, d, seed=1))
        weight = jnp.asarray(points(7, 5, seed=2))
        ours = lambda a, b: jnp.sum(weight * jnp.exp(-distances_from(a, b, careful=True)(b)))
        direct = lambda a, b: jnp.sum(weight * jnp.exp(-jnp.sum((a[:, None] - b) ** 2, axis=2)))
        for derivative in (jax.grad, jax.hessian, jax.jacfwd):
            for which in (0, 1):
                results = [np.asarray(derivative(function, which)(a, b)) for function in (ours, direct)]
                np.testing.assert_allclose(*results, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_near_neighbours_are_told_apart_in_float32(d):
    lengthscale = 0.01  # a hundredth of the range
    a = np.random.default_rng(0).uniform(size=(200, d)).astype(np.float32)
    b = (a + 0.1 * lengthscale * points(200, d)).astype(np.float32)
    for kernel in (dg.RBF(lengthscale), dg.Matern12(lengthscale)):
        values = np.asarray(block(kernel, a, b))
        np.testing.assert_allclose(values, gram(kernel, a, b), atol=2e-3)
        assert 0.7 < np.median(values.diagonal()) < 1.0


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_an_outlier_does_not_merge_the_other_points(d):
    a = np.random.default_rng(0).uniform(size=(100, d)).astype(np.float32)
    with_outlier = np.concatenate([a, np.full((1, d), 1e3, np.float32)])
    kernel = dg.Matern12(0.3)
    np.testing.assert_allclose(block(kernel, with_outlier, with_outlier), gram(kernel, with_outlier), atol=0.02)


@settings(max_examples=60, deadline=None)
@given(
    d=st.sampled_from([1, 2, 3, 5]), log_scale=st.integers(-6, 6), offset=st.integers(-3, 3), seed=st.integers(0, 99)
)
def test_distances_are_close_to_direct_ones_at_any_scale_and_offset(d, log_scale, offset, seed):
    a = ((points(16, d, seed) + offset) * 10.0**log_scale).astype(np.float32)
    direct = cdist(a.astype(np.float64), a.astype(np.float64), "sqeuclidean")
    np.testing.assert_allclose(distances(a, a, np.float32), direct, atol=1e-5 * direct.max())


def test_safe_sqrt_is_the_square_root():
    np.testing.assert_allclose(safe_sqrt(jnp.asarray([0.0, 4.0, 9.0])), [0.0, 2.0, 3.0])


@pytest.mark.parametrize("d", [2, 5, 12])
@pytest.mark.parametrize("far", [1e3, 1e6])
def test_a_row_far_away_does_not_cost_the_others_their_digits(d, far):
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0, 3, (20, d)).astype(np.float32) for _ in range(2))
    outlier = np.full((1, d), far, np.float32)
    with_it = squared_distances(jnp.asarray(np.concatenate([a, outlier])), jnp.asarray(b))
    expected = ((a[:, None].astype(np.float64) - b) ** 2).sum(axis=2)
    np.testing.assert_allclose(with_it[:-1], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(with_it[-1], d * far**2, rtol=0.01)


@pytest.mark.parametrize("d", [17, 60])
def test_care_makes_distances_of_near_points_ten_times_as_exact(d):
    a = points(300, d).astype(np.float32) * 10
    b = a + 0.01 * points(300, d, seed=1).astype(np.float32)
    direct = cdist(a.astype(np.float64), b.astype(np.float64), "sqeuclidean").diagonal()
    errors = [
        np.abs(np.asarray(distances_from(jnp.asarray(a), jnp.asarray(b), careful)(jnp.asarray(b))).diagonal() - direct)
        for careful in (False, True)
    ]
    assert np.sqrt(np.mean(errors[1] ** 2)) < 0.1 * np.sqrt(np.mean(errors[0] ** 2))


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("d", [2, 12])
def test_a_tile_has_the_distances_of_the_whole(d, careful):
    a, b = (jnp.asarray(points(n, d, seed), jnp.float32) for n, seed in ((30, 0), (50, 1)))
    squared_to = distances_from(a, b, careful)
    np.testing.assert_allclose(squared_to(b[10:30]), squared_to(b)[:, 10:30], rtol=1e-6, atol=1e-6)
