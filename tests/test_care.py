"""Prediction is as careful as the solve: in float32 it is within its bound of the exact posterior in float64."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import exact_posterior, gram, points
from dualgp._arrays import wide

KEY = jax.random.key(0)


def near_duplicates_that_disagree():
    """2,000 rows in clusters of near-duplicates."""
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.normal(size=(200, 12)), 10, axis=0)
    x = (5.0 * centres + 1e-2 * rng.normal(size=centres.shape)).astype(np.float32)
    y = (np.sin(x[:, 0]) + 0.2 * rng.normal(size=len(x))).astype(np.float32)
    return x, y


def short_lengthscale():
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (1500, 12)).astype(np.float32)
    x[750:] = x[:750] + (3e-3 * rng.normal(size=(750, 12))).astype(np.float32)
    return x, np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=1500).astype(np.float32)


def many_inputs():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1500, 20)).astype(np.float32)
    return x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=1500).astype(np.float32)


CASES = {
    "near-duplicates": (dg.Matern32(1.0), 1e-4, near_duplicates_that_disagree),
    "short-lengthscale": (dg.Matern32(0.01), 1e-2, short_lengthscale),
    "many-inputs": (dg.Matern12(0.5), 0.1, many_inputs),
}
each_case = pytest.mark.parametrize(("kernel", "noise", "make"), CASES.values(), ids=CASES)


def _residuals(kernel, noise, x, post):
    targets, weights = (np.asarray(array, np.float64) for array in (post.targets, post.weights))
    return (targets - gram(kernel, x) @ weights - noise * weights).astype(np.float32)


def nearby(x, lengthscale):
    """The data, and points so near to them that products of matrices in float32 do not tell them apart."""
    return np.concatenate([x[:200], x[:200] + (1e-2 * lengthscale * points(200, x.shape[1])).astype(x.dtype)])


@each_case
def test_predictions_in_float32_are_within_their_bound_of_the_exact_ones(kernel, noise, make):
    x, y = make()
    model = dg.GaussianProcess(kernel, noise)
    settings = {"solver": dg.BlockDescent(tol=1e-2), "memory": 0, "key": KEY}
    post = model.condition(x, y, num_samples=64, neighbours=0, **settings)
    assert post.solution.result is dg.Result.CONVERGED and post.x.dtype == np.float32
    x_new = nearby(x, float(kernel.lengthscale))
    # The exact answer from the same weights, and the exact posterior.
    exact = exact_posterior(kernel, noise, x, y, x_new)
    same_weights = gram(kernel, x_new, x) @ np.asarray(post.weights[:, 0], np.float64)
    error = np.abs(post.mean(x_new) - exact.mean)
    assert np.abs(post.mean(x_new) - same_weights).max() < 1e-3 * np.std(y)
    assert (error <= post.error_bound(x_new)).all() and error.max() <= post.error_bound()
    near = replace(post, neighbours=20, residuals=_residuals(kernel, noise, x, post))
    assert (np.abs(near.mean(x_new) - exact.mean) <= near.error_bound(x_new)).all()
    std = np.sqrt(np.maximum(exact.covariance.diagonal(), 0.0))
    assert np.median(post.std(x_new) / std) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("case", ["near-duplicates", "short-lengthscale"])
def test_functions_with_points_of_their_own_are_the_same_functions(case):
    kernel, noise, make = CASES[case]
    x, y = make()
    settings = {"solver": dg.BlockDescent(tol=1e-2), "memory": 0, "key": KEY, "num_samples": 4}
    paths = dg.GaussianProcess(kernel, noise).condition(x, y, **settings).samples
    where = nearby(x, float(kernel.lengthscale))[:8]
    each, _ = jax.jit(paths.each)(jnp.broadcast_to(jnp.asarray(where), (4, *where.shape)))
    np.testing.assert_allclose(each, paths(where), atol=2e-3 * np.std(y))


def test_derivatives_by_differences_have_their_digits_in_float32():
    """d/dlog(lengthscale) and d/dx of near pairs, where the range is a thousand lengthscales."""
    rng = np.random.default_rng(0)
    x1 = rng.uniform(0, 1000, (200, 2))
    x2 = x1 + rng.normal(size=x1.shape)

    def near(kernel, x1, x2):
        return jnp.diagonal(kernel.against(x1, x2, True)(x2))

    def derivatives(dtype):
        a, b = (jnp.asarray(x, dtype) for x in (x1.astype(np.float32), x2.astype(np.float32)))
        one = jnp.zeros((), dtype)
        slope = jax.jacfwd(lambda u: near(dg.Matern32(jnp.exp(u), 1.0), a, b))(one)

        back = jax.grad(lambda a: jnp.sum(near(dg.Matern32(1.0), a, b)))(a)
        return np.asarray(slope, np.float64), np.asarray(back, np.float64)

    with wide():
        exact = derivatives(jnp.float64)
    for found, true in zip(derivatives(jnp.float32), exact, strict=True):
        assert np.sqrt(np.mean((found - true) ** 2) / np.mean(true**2)) < 1e-3
