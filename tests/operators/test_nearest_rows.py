"""The nearest rows of points and what they alone say: against looking at all rows, and a dense solve in float64."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, points
from dualgp.operators import policy
from dualgp.operators.nearest import NearestRows, neighbour_weights
from dualgp.operators.noise import Noise

N, M = 150, 12


def inputs(name):
    if "Tanimoto" not in name:
        return points(N), points(M, seed=3)
    rng = np.random.default_rng(0)
    return tuple(rng.poisson(1.0, (n, points(2).shape[1])).astype(np.uint8) for n in (N, M))


def gram(kernel, a, b):
    with jax.enable_x64(True):
        return np.asarray(kernel(np.asarray(a, np.float64), np.asarray(b, np.float64)))


def solve_densely(kernel, x, point, near, noise=NOISE):
    """u = A_NN^-1 k_N and k(x, x) - k_N u."""
    across = gram(kernel, x[near], point[None])[:, 0]
    weights = np.linalg.solve(gram(kernel, x[near], x[near]) + noise * np.eye(len(near)), across)
    return weights, gram(kernel, point[None], point[None])[0, 0] - across @ weights


@pytest.mark.parametrize("name", KERNELS)
def test_weights_of_neighbours_are_those_of_a_dense_solve(name):
    kernel, (x, new) = KERNELS[name], inputs(name)
    search = NearestRows(kernel, x)
    near = search.query(new, 20)
    assert near.shape == (M, 20) and all(len(set(row)) == 20 for row in near.tolist())
    weights, variance = neighbour_weights(search, Noise(NOISE), new, near)
    for i in range(M):
        expected, remaining = solve_densely(kernel, x, new[i], near[i])
        np.testing.assert_allclose(weights[i], expected, atol=1e-8)
        np.testing.assert_allclose(variance[i], remaining, atol=1e-8)


def test_a_tree_finds_the_rows_at_the_smallest_scaled_distance():
    kernel = dg.Matern32(np.array([0.2, 3.0]))
    x, new = np.random.default_rng(0).normal(size=(500, 2)), np.random.default_rng(1).normal(size=(7, 2))
    squared = (((new[:, None] - x) / [0.2, 3.0]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(NearestRows(kernel, x).query(new, 9), np.argsort(squared, axis=1)[:, :9])


def test_counts_have_the_most_similar_rows_for_neighbours(monkeypatch):
    monkeypatch.setattr(policy, "SEARCH_ENTRIES", 5 * N)  # in several parts, the last one short
    kernel, (x, new) = dg.Tanimoto(), inputs("Tanimoto")
    near = NearestRows(kernel, x).query(new, 5)
    similar = gram(kernel, new, x)
    found = np.take_along_axis(similar, near, axis=1)
    np.testing.assert_allclose(found, -np.sort(-similar, axis=1)[:, :5], rtol=1e-6)


def test_batches_make_no_difference(monkeypatch):
    kernel, (x, new) = KERNELS["Matern32"], inputs("Matern32")
    search = NearestRows(kernel, x)
    near = search.query(new, 8)
    at_once = neighbour_weights(search, Noise(NOISE), new, near)
    monkeypatch.setattr(policy, "NEAR_ENTRIES", 5 * 8**2)
    for whole, parts in zip(at_once, neighbour_weights(search, Noise(NOISE), new, near), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_more_neighbours_than_rows_are_all_rows():
    near = NearestRows(dg.RBF(), np.zeros((3, 2))).query(np.ones((1, 2)), 10)
    assert sorted(near[0].tolist()) == [0, 1, 2]


def test_equal_rows_without_noise_give_numbers():
    x, new = np.zeros((40, 2)), np.array([[0.0, 0.0], [1e6, 0.0]])
    kernel = dg.Matern32(1.0, 2.0)
    search = NearestRows(kernel, x)
    weights, variance = neighbour_weights(search, Noise(0.0), new, search.query(new, 30))
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights[0].sum(), 1.0, atol=1e-6)
    np.testing.assert_allclose(variance, [0.0, 2.0], atol=1e-6)


def test_no_points_have_no_neighbours():
    search = NearestRows(dg.RBF(), np.zeros((3, 2)))
    near = search.query(np.zeros((0, 2)), 2)
    weights, variance = neighbour_weights(search, Noise(NOISE), np.zeros((0, 2)), near)
    assert near.shape == weights.shape == (0, 2) and variance.shape == (0,)


@pytest.mark.parametrize("name", ["Matern32", "Tanimoto"])
def test_other_rows_than_the_row_itself(name):
    kernel, (x, _) = KERNELS[name], inputs(name)
    x = np.concatenate([x, x[:60]])  # some are there twice: the copy is another row
    rows = np.arange(len(x), dtype=np.int32)
    near = NearestRows(kernel, x).query_others(rows, x, 6)
    assert near.shape == (len(x), 6) and not (near == rows[:, None]).any()
    assert all(i + N in near[i] for i in range(60) if name == "Matern32")


def test_no_neighbours_are_refused():
    with pytest.raises(ValueError, match="num"):
        NearestRows(dg.RBF(), np.zeros((3, 2))).query(np.zeros((1, 2)), 0)
