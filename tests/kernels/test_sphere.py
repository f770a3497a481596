"""Longitudes and latitudes: chords, the date line, the poles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import NOISE, gram
from dualgp.operators.nearest import NearestRows


def places(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))], axis=1)


def angle(a, b):
    """The angle between places, by the haversine formula."""
    (lon1, lat1), (lon2, lat2) = np.radians(a).T[:, :, None], np.radians(b).T[:, None, :]
    h = np.sin((lat1 - lat2) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon1 - lon2) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(h))


def test_distance_is_the_chord():
    a, b = places(30), places(20, 1)
    chord = 2 * 6371.0 * np.sin(angle(a, b) / 2)
    np.testing.assert_allclose(
        gram(dg.OnSphere(dg.RBF(900.0, 1.3)), a, b), 1.3 * np.exp(-0.5 * (chord / 900.0) ** 2), atol=1e-9
    )


def test_the_date_line_and_the_poles_are_places_like_others():
    kernel = dg.OnSphere(dg.Matern32(500.0))
    np.testing.assert_allclose(gram(kernel, [[180.0, 40.0]], [[-180.0, 40.0]]), 1.0, rtol=1e-12)
    np.testing.assert_allclose(gram(kernel, [[10.0, 90.0]], [[-120.0, 90.0]]), 1.0, rtol=1e-12)
    np.testing.assert_allclose(gram(kernel, [[350.0, 5.0]], [[-10.0, 5.0]]), 1.0, rtol=1e-12)


def test_a_street_away_is_told_apart_in_float32():
    x = np.array([[8.5417, 47.3769], [8.5437, 47.3769], [8.5417, 47.3809]], np.float32)
    kernel = dg.OnSphere(dg.Matern12(1.0))
    np.testing.assert_allclose(kernel(x, x), gram(kernel, x.astype(np.float64)), atol=2e-3)


def test_other_columns_are_looked_at_by_other_kernels():
    x = np.column_stack([places(20)[:, 1], np.arange(20.0), places(20)[:, 0]])
    kernel = dg.OnSphere(dg.RBF(900.0), columns=(2, 0)) * dg.On(dg.Matern12(3.0), 1, 2)
    expected = gram(dg.OnSphere(dg.RBF(900.0)), places(20)) * gram(dg.Matern12(3.0), x[:, 1:2])
    np.testing.assert_allclose(gram(kernel, x), expected, atol=1e-12)


@pytest.mark.parametrize(
    "kernel", [dg.OnSphere(dg.Matern32(2000.0)), dg.OnSphere(dg.RBF(3e3) + dg.Laplace(4e3))], ids=repr
)
def test_prior_functions_have_the_kernel_as_covariance_and_no_seam(kernel):
    x = places(10).astype(np.float32)
    maps = [kernel.features(key, 512, 2) for key in jax.random.split(jax.random.key(0), 64)]
    products = np.stack([np.asarray(phi(x) @ phi(x).T, np.float64) for phi in maps])
    error = products.std(axis=0, ddof=1) / np.sqrt(len(products))
    assert (np.abs(products.mean(axis=0) - gram(kernel, x)) <= 4.5 * error + 1e-5).all()
    here, there = (maps[0](np.float32([[lon, 30.0]])) for lon in (180.0, -180.0))
    np.testing.assert_allclose(here, there, atol=1e-3)


def test_a_posterior_crosses_the_date_line():
    x = places(500)
    y = np.cos(np.radians(x[:, 0])) * np.cos(np.radians(x[:, 1])) + np.sin(3 * np.radians(x[:, 1]))
    post = dg.GaussianProcess(dg.OnSphere(dg.Matern52(4000.0)), 1e-4).condition(
        x, y, num_samples=4, key=jax.random.key(0)
    )
    line = np.array([[180.0, 10.0], [-180.0, 10.0]])
    np.testing.assert_allclose(*post.mean(line), atol=1e-8)
    np.testing.assert_allclose(
        post.mean(line), np.cos(np.pi) * np.cos(np.radians(10)) + np.sin(np.radians(30)), atol=0.02
    )
    np.testing.assert_allclose(*post.samples(line).T, atol=1e-2)


def test_the_nearest_places_are_found_across_the_date_line():
    x, centre = places(500), np.array([[179.5, 20.0]])
    kernel = dg.OnSphere(dg.Matern32(1000.0))
    assert kernel.falls_with_distance
    expected = np.argsort(angle(centre, x)[0])[:8]
    np.testing.assert_array_equal(NearestRows(kernel, x).query(centre, 8)[0], expected)


def test_lengthscales_in_km_are_learned_and_inputs_are_not_moved():
    x = places(400)
    true = dg.GaussianProcess(dg.OnSphere(dg.Matern32(3000.0)), NOISE)
    truth = np.linalg.cholesky(gram(true.kernel, x) + NOISE * np.eye(400)) @ np.random.default_rng(1).normal(size=400)
    fitted = dg.GPRegressor(dg.OnSphere(dg.Matern32(100.0)), random_state=0).fit(x, truth)
    assert not fitted.X_offset_.any()
    assert 1500 < float(fitted.kernel_.kernel.lengthscale) < 6000
    assert fitted.noise_ == pytest.approx(NOISE, rel=0.5)


def test_gradients_are_finite_at_a_place_itself():
    x = jnp.asarray(places(3), jnp.float32)
    for derivative in (jax.grad, jax.hessian):
        value = derivative(lambda point: jnp.sum(dg.OnSphere(dg.Matern52(900.0))(point[None], x)))(x[0])
        assert np.isfinite(value).all()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (dg.OnSphere(dg.RBF(), columns=(1, 0)), "Column 0 of x is no latitude: .* Pass columns="),
        (dg.OnSphere(dg.RBF(), columns=(0, 2)), "x has 2 column"),
    ],
)
def test_columns_that_are_no_longitude_and_latitude_are_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        dg.GaussianProcess(kernel, NOISE).condition(places(), np.zeros(200), num_samples=0)


@pytest.mark.parametrize(
    "settings", [{"radius": 0.0}, {"columns": (1, 1)}, {"columns": (0, 1, 2)}, {"columns": (-1, 0)}]
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match="OnSphere"):
        dg.OnSphere(dg.RBF(), **settings)


def test_it_shows_what_it_sees():
    expected = "OnSphere(RBF(lengthscale=900, variance=1), columns=(2, 0), radius=6371)"
    assert repr(dg.OnSphere(dg.RBF(900.0), (2, 0))) == expected
