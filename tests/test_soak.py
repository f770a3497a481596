"""The work of a long run, repeated, leaves memory and open files level."""

import gc
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import data
from dualgp import _arrays

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
X, Y = data(60)
MODEL = dg.GaussianProcess(dg.Matern32(0.8), 0.1)
KEY = jax.random.key(0)


def resident():
    """Megabytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def maps():
    return len(Path("/proc/self/maps").read_text().splitlines())


def predict_exactly(post, path):
    for method in (post.predict, post.covariance, post.error_bound):
        method(X[:20])


def save_and_load(post, path):
    dg.save(post, path)
    dg.load(path).predict(X[:5])


def tell(post, path):
    sampler = dg.ThompsonSampler([(-9, 9)] * 3, key=KEY, path=path)
    sampler.tell(X, Y)


@pytest.mark.parametrize("solver", [dg.Cholesky(), dg.BlockDescent(block_size=20)], ids=["exact", "sampled"])
@pytest.mark.parametrize("work", [predict_exactly, save_and_load, tell])
def test_what_is_done_again_and_again_keeps_memory_maps_and_files_level(work, solver, tmp_path):
    post = MODEL.condition(X, Y, solver=solver, num_samples=2, num_features=64, key=KEY)
    path = tmp_path / "file"
    for _ in range(40):
        work(post, path)
        path.unlink(missing_ok=True)
    before = resident(), maps(), len(os.listdir("/proc/self/fd"))
    for _ in range(60):
        work(post, path)
        path.unlink(missing_ok=True)
    after = resident(), maps(), len(os.listdir("/proc/self/fd"))
    assert after[0] < before[0] + 15 and after[1] < before[1] + 100 and after[2] <= before[2] + 2, (before, after)


def fit_and_predict(n):
    x, y = data(n)
    regressor = dg.GPRegressor(noise=0.1, n_samples=2, random_state=0).fit(x, y)
    return regressor.update(x[:1] + 0.1, y[:1]).predict(x[:3])


def test_another_number_of_rows_needs_few_new_programs():
    fit_and_predict(97)
    before = len(_arrays._programs)
    for n in (98, 101, 103):
        fit_and_predict(n)
    assert len(_arrays._programs) - before <= 20  # 42 if sizes are not padded


def test_programs_are_forgotten_when_there_are_many(monkeypatch):
    expected = fit_and_predict(60)
    monkeypatch.setattr(_arrays, "MOST_PROGRAMS", 3)
    before = maps()
    for _ in range(3):
        np.testing.assert_array_equal(fit_and_predict(60), expected)
        assert len(_arrays._programs) < 60
    assert maps() < before + 400
