"""Maxima of posterior functions: against brute force, in boxes of any place and size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import NOISE, data
from dualgp._arrays import wide
from dualgp.decisions import maxima
from dualgp.decisions.maxima import check_bounds, climb_all, spread_of

KEY = jax.random.key(3)
QUICK = dg.Search(num_rounds=4, num_candidates=512, num_steps=40)


def posterior(d=1, n=60, num_samples=8, low=0.0, high=1.0, kernel=None, mean=0.5, dtype=np.float64):
    rng = np.random.default_rng(0)
    x = rng.uniform(low, high, (n, d)).astype(dtype)
    y = np.sin(9.0 * (x - low) / (high - low)).sum(axis=1) + 0.1 * rng.standard_normal(n)
    kernel = dg.Matern52(0.2 * (high - low), 1.0) if kernel is None else kernel
    return dg.GaussianProcess(kernel, 1e-2, mean).condition(
        x, y, num_samples=num_samples, num_features=512, key=KEY, dtype=dtype
    )


def test_each_is_every_function_at_its_own_points_with_its_gradient():
    x, y = data(700, dtype=np.float32)
    paths = dg.GaussianProcess(dg.Matern32(0.9), NOISE, 0.3).condition(x, y, num_samples=5, key=KEY).samples
    with wide():
        own = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4, 3)))
        values, gradients = jax.jit(paths.each)(own)
        whole = paths(np.asarray(own).reshape(20, 3)).reshape(5, 5, 4)
        np.testing.assert_allclose(values, whole[np.arange(5), np.arange(5)], rtol=1e-9)
        gradient = jax.grad(lambda p: paths[2](p[None])[0, 0])(own[2, 1])
        np.testing.assert_allclose(gradients[2, 1], gradient, rtol=1e-7)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-5000.0, 3000.0), (0.01, 0.013)])
def test_maxima_are_those_of_a_fine_grid(low, high):
    post = posterior(low=low, high=high)
    found = dg.maximise(post.samples, [(low, high)], key=KEY, search=QUICK)
    grid = post.samples(np.linspace(low, high, 4001))
    assert (found.value > grid.max(axis=1) - 1e-4).all()
    np.testing.assert_allclose(found.value, np.diag(post.samples(found.x)), rtol=1e-9)
    assert (found.x >= low).all()
    assert (found.x <= high).all()


def test_minima_are_the_maxima_of_the_functions_turned_upside_down():
    post = posterior()
    found = dg.maximise(-post.samples, [(0.0, 1.0)], key=KEY, search=QUICK)
    grid = post.samples(np.linspace(0.0, 1.0, 4001))
    assert (-found.value < grid.min(axis=1) + 1e-4).all()


def test_four_dimensions_beat_a_hundred_thousand_random_points():
    post = posterior(d=4, n=200, kernel=dg.Matern32(0.5) + dg.RBF(1.0))
    found = dg.maximise(post.samples, [(0.0, 1.0)] * 4, key=KEY)
    random = post.samples(np.random.default_rng(5).random((100_000, 4))).max(axis=1)
    assert (found.value > random).all()


def test_maximum_in_a_corner_is_found_exactly():
    x = np.random.default_rng(0).random((50, 2))
    post = dg.GaussianProcess(dg.RBF(2.0), 1e-4).condition(x, x.sum(axis=1), num_samples=4, num_features=256, key=KEY)
    found = dg.maximise(post.samples, [(0.0, 1.0)] * 2, key=KEY, search=QUICK)
    np.testing.assert_array_equal(found.x, 1.0)


def test_box_far_from_the_data_is_searched_too():
    post = posterior(n=40)
    found = dg.maximise(post.samples, [(4.0, 5.0)], key=KEY, search=QUICK)
    grid = post.samples(np.linspace(4.0, 5.0, 4001))
    assert (found.value > grid.max(axis=1) - 1e-4).all()


def test_float32_functions_end_as_high_as_float64_ones():
    found, single = (
        dg.maximise(posterior(dtype=dtype).samples, [(0.0, 1.0)], key=KEY, search=QUICK).value
        for dtype in (np.float64, np.float32)
    )
    np.testing.assert_allclose(single, found, atol=2e-4)


def test_other_climbs_come_after_the_best_one():
    post = posterior(num_samples=6)
    x, values = climb_all(post.samples, [(0.0, 1.0)], key=KEY, search=dg.Search(num_rounds=5, num_starts=4))
    assert x.shape == (6, 4, 1)
    assert (np.diff(values, axis=1) <= 0).all()


def test_candidates_favour_good_points():
    post = posterior()
    x, score = np.linspace(0.0, 1.0, 50)[:, None], np.linspace(-3.0, -1.0, 50)
    good = maxima._good_points(post.samples, check_bounds([(0.0, 1.0)]), (x, score), np.random.default_rng(0))
    assert good.probability[0] == 0.0
    assert (np.diff(good.probability) > 0).all()
    outside = maxima._good_points(post.samples, check_bounds([(0.5, 1.0)]), (x, score), np.random.default_rng(0))
    assert outside.x.min() >= 0.5


def test_spread_is_half_the_lengthscale_and_at_most_half_the_box():
    box = np.array([(0.0, 1.0), (0.0, 10.0)])
    np.testing.assert_allclose(spread_of(dg.Matern32([0.2, np.inf]), box), [0.1, 5.0])


def test_functions_are_compiled_once_for_calls_of_one_size():
    traced = []

    class Counting(dg.RBF):
        def __call__(self, x1, x2):
            traced.append(x1.shape)
            return dg.RBF(self.lengthscale, self.variance)(x1, x2)

    x, y = data(50)
    paths = dg.GaussianProcess(Counting(1.0), NOISE).condition(x, y, num_samples=3, key=KEY).samples
    paths(x[:10])
    first = len(traced)
    paths(x[10:20])
    assert len(traced) == first


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([(1.0, 0.0)], "lower bound must be below"),
        ([(0.0, 1.0)] * 2, "for each of 1 input"),
        ([(0.0, np.inf)], "infinite"),
        ([0.0, 1.0], "pair"),
    ],
)
def test_bounds_that_are_no_box_are_refused(bounds, message):
    with pytest.raises(ValueError, match=message):
        dg.maximise(posterior().samples, bounds, key=KEY)


def test_something_that_is_not_a_posterior_function_is_refused():
    with pytest.raises(TypeError, match=r"SamplePaths|post\.samples"):
        dg.maximise(np.sin, [(0.0, 1.0)], key=KEY)
    counts = np.random.default_rng(0).integers(0, 3, (20, 5)).astype(np.uint8)
    post = dg.GaussianProcess(dg.Tanimoto(), NOISE).condition(counts, np.arange(20.0), num_samples=2, key=KEY)
    with pytest.raises(ValueError, match="must hold counts"):
        dg.maximise(post.samples, [(0.0, 1.0)] * 5, key=KEY)
    with pytest.raises(ValueError, match="share between 0 and 1"):
        dg.Search(uniform=2.0)
