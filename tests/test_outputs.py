"""Several outputs: one kernel, one noise, one solve; each output as if it were alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import points
from dualgp.learning import Exact, FullData, Neighbours, log_likelihood

KEY = jax.random.key(0)


def several(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    f = np.stack([np.sin(2 * x[:, 0]), np.cos(2 * x[:, 1]) + 1.0, np.sin(x.sum(axis=1)) - 2.0], axis=1)
    return x, f + 0.2 * rng.normal(size=f.shape)


@pytest.mark.parametrize("solver", ["auto", dg.BlockDescent(tol=1e-4), dg.CG(tol=1e-6)], ids=["exact", "blocks", "cg"])
def test_every_output_is_as_if_it_were_alone(solver):
    x, y = several()
    model, x_new = dg.GaussianProcess(dg.Matern32(0.8), 0.04, mean=[0.0, 1.0, -2.0]), points(30, 2, seed=1)
    run = {"solver": solver, "num_samples": 6, "key": KEY, "dtype": np.float64, "neighbours": 50}
    post = model.condition(x, y, **run)
    assert post.num_outputs == 3 and post.num_samples == 6
    mean, std = post.predict(x_new, noise=True)
    assert mean.shape == (30, 3) and std.shape == (30,)
    for j in range(3):
        alone = dg.GaussianProcess(model.kernel, 0.04, model.mean[j]).condition(x, y[:, j], **run)
        one = post.output(j)
        np.testing.assert_allclose(mean[:, j], alone.mean(x_new), atol=1e-3)
        np.testing.assert_allclose(one.mean(x_new), mean[:, j], atol=1e-6)
        np.testing.assert_allclose(one.predict(x_new, noise=True)[1], std, rtol=1e-5)
        np.testing.assert_allclose(std, alone.std(x_new, noise=True), rtol=0.02)
        np.testing.assert_allclose(post.leave_one_out()[0][:, j], alone.leave_one_out()[0], atol=5e-3)
        np.testing.assert_allclose(
            post.log_prob(x_new, mean + 0.1)[:, j], one.log_prob(x_new, mean[:, j] + 0.1), rtol=1e-4
        )
    with pytest.raises(IndexError, match="numbered from 0"):
        post.output(3)


def test_functions_of_outputs_scatter_around_their_means_independently():
    x, y = several(200)
    post = dg.GaussianProcess(dg.Matern32(0.8), 0.04).condition(x, y, num_samples=800, key=KEY, num_features=1024)
    x_new = points(6, 2, seed=1)
    values = post.samples(x_new)
    assert values.shape == (800, 6, 3) and len(post.samples) == 800 and post.samples[5](x_new).shape == (1, 6, 3)
    np.testing.assert_allclose(post.samples[3:7](x_new), values[3:7], rtol=1e-9)
    mean, std = post.predict(x_new)
    standard = (values - mean) / std[:, None]
    assert np.abs(standard.mean(axis=0)).max() < 5 / np.sqrt(800)
    assert np.abs(standard.std(axis=0) - 1).max() < 0.15
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(np.mean(standard[:, :, i] * standard[:, :, j], axis=0)).max() < 5 / np.sqrt(800)
    traced = jax.jit(lambda points: post.samples[:4](points))(jnp.asarray(x_new, jnp.float32))
    np.testing.assert_allclose(traced, values[:4], atol=1e-3)
    np.testing.assert_allclose(post.samples.average()(x_new)[0], values.mean(axis=0), atol=1e-5)
    with pytest.raises(ValueError, match="Choose one"):
        dg.maximise(post.samples, [(-2, 2), (-2, 2)], key=KEY)
    found = dg.maximise(post.output(1).samples[:3], [(-2, 2), (-2, 2)], key=KEY)
    assert found.x.shape == (3, 2)


def test_update_refine_and_files(tmp_path):
    x, y = several(700)
    model, x_new = dg.GaussianProcess(dg.Matern32(0.8), 0.04), points(20, 2, seed=1)
    run = {"num_samples": 4, "key": KEY, "dtype": np.float64}
    post = model.condition(x[:600], y[:600], solver=dg.BlockDescent(tol=1e-2), **run)
    more = post.update(x[600:], y[600:], key=KEY).refine(solver=dg.BlockDescent(tol=1e-6), key=KEY)
    exact = model.condition(x, y, num_samples=0)
    np.testing.assert_allclose(more.mean(x_new), exact.mean(x_new), atol=1e-4)
    assert np.all(
        np.abs(post.mean(x_new) - model.condition(x[:600], y[:600], num_samples=0).mean(x_new)) <= post.error_bound()
    )
    dg.save(more, tmp_path / "several.dgp")
    again = dg.load(tmp_path / "several.dgp")
    np.testing.assert_array_equal(again.mean(x_new), more.mean(x_new))
    assert "3 outputs" in again.report() and again.num_outputs == 3
    with pytest.raises(ValueError, match="1 output"):
        post.update(x[600:], y[600:, 0], key=KEY)


def test_neighbours_alone_have_several_outputs():
    x, y = several(500)
    model, x_new = dg.GaussianProcess(dg.Matern32(0.8), 0.04), points(20, 2, seed=1)
    post = model.condition(x, y, num_far=0, neighbours=500, num_samples=3, key=KEY)
    np.testing.assert_allclose(post.mean(x_new), model.condition(x, y, num_samples=0).mean(x_new), atol=1e-4)
    assert post.samples(x_new).shape == (3, 20, 3) and post.output(2).mean(x_new).shape == (20,)


@pytest.mark.parametrize(
    "method", [Exact(num_starts=1), Neighbours(), FullData(num_steps=6, gain=1e-4)], ids=lambda m: type(m).__name__
)
def test_all_outputs_are_learned_from_together(method):
    x, y = several(600)
    start = dg.GaussianProcess(dg.RBF(1.5), 0.5)
    learned = dg.learn(start, x, y, method=method, priors=None, key=KEY)
    assert np.shape(learned.model.mean) == (3,)
    assert 0.03 < float(learned.model.noise) < 0.055
    exact = dg.learn(start, x, y, method=Exact(num_starts=1), priors=None).model
    assert log_likelihood(learned.model, x, y) > log_likelihood(exact, x, y) - 25  # of 1,800 targets


def test_odd_outputs_are_refused():
    x, y = several(50)
    model = dg.GaussianProcess(dg.Matern32(), 0.1)
    with pytest.raises(ValueError, match="y\\[3, 1\\]"):
        model.condition(x, np.where(np.arange(50)[:, None] == 3, [0.0, np.nan, 0.0], y), num_samples=0)
    with pytest.raises(ValueError, match="one row of targets"):
        model.condition(x, y[:40], num_samples=0)
    with pytest.raises(ValueError, match="2 means"):
        dg.GaussianProcess(dg.Matern32(), 0.1, mean=[0.0, 1.0]).condition(x, y, num_samples=0)
    constant = np.column_stack([y[:, 0], np.full(50, 3.0)])
    assert np.isfinite(dg.learn(model, x, constant, key=KEY).model.condition(x, constant, num_samples=0).mean(x)).all()
