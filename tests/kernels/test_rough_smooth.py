"""The sum of a rough and a smooth kernel that share their distances: its formula, frequencies and parameters."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import PER_DIMENSION, gram, points


@pytest.mark.parametrize("lengthscale", [0.8, PER_DIMENSION])
def test_it_is_the_sum_of_its_parts(lengthscale):
    x1, x2 = points(40), points(25, seed=1)
    smooth, rough = dg.Matern52(lengthscale, 1.3 / 1.4), dg.Matern12(0.2 * np.asarray(lengthscale), 1.3 * 0.4 / 1.4)
    kernel = dg.RoughSmooth(lengthscale, 1.3, rough=0.4, stretch=0.2)
    np.testing.assert_allclose(gram(kernel, x1, x2), gram(smooth + rough, x1, x2), atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(x1), 1.3)


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize(("rough", "stretch"), [(0.3, 1.0), (0.05, 0.04), (3.0, 10.0)])
def test_frequencies_are_as_long_as_draws_of_their_definition(rough, stretch, d):
    rng, num = np.random.default_rng(0), 200_000
    nu = np.where(rng.random(num) < rough / (1 + rough), 0.5, 2.5)
    drawn = np.sqrt(rng.chisquare(d, num) * 2 * nu / rng.chisquare(2 * nu)) / np.where(nu == 0.5, stretch, 1.0)
    tail = np.array([0.001, 0.01, 0.1, 0.3])
    found = (drawn[:, None] > dg.RoughSmooth(1.0, 1.0, rough, stretch).frequency_length(tail, d)).mean(axis=0)
    assert (np.abs(found - tail) < 4.5 * np.sqrt(tail / num)).all()


def test_details_and_their_size_are_learned():
    x = points(300, 1, seed=3)
    truth = gram(dg.RoughSmooth(1.0, 1.0, 0.1, 0.03), x) + 1e-4 * np.eye(300)
    y = np.linalg.cholesky(truth) @ np.random.default_rng(0).normal(size=300)
    learned = [
        dg.learn(dg.GaussianProcess(kind(1.0), 0.01), x, y, key=jax.random.key(0)).model
        for kind in (dg.RoughSmooth, dg.Matern52, dg.Matern32)
    ]
    ours, *others = (dg.learning.log_likelihood(model, x, y) for model in learned)
    assert ours > max(others) + 5.0
    assert 0.01 < float(learned[0].kernel.rough) < 1.0 and float(learned[0].kernel.stretch) < 0.2


@pytest.mark.parametrize("settings", [{"rough": 0.0}, {"stretch": -1.0}, {"rough": np.inf}, {"stretch": [1.0, 2.0]}])
def test_ratios_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        dg.RoughSmooth(**settings)
