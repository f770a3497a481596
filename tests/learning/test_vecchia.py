"""Blocks given the rows near them: the right rows, the right densities, and what is learned from them."""

import jax
import numpy as np
import pytest
import scipy.stats

import dualgp as dg
from cases import KERNELS, data
from datasets import prior_draw
from dualgp.learning import Exact, Neighbours, blocks, vecchia
from dualgp.learning.blocks import Shape, cut, find_blocks, find_given, find_predictions
from dualgp.learning.conditional import likelihood, likelihood_and_gradient
from dualgp.learning.likelihood import as_group, log_likelihood
from dualgp.learning.likelihood import likelihood_and_gradient as exact_likelihood
from dualgp.learning.parameters import Parameters
from dualgp.learning.problem import make_problem
from dualgp.learning.rows import as_rows

KEY = jax.random.key(0)


def blocks_of(model, x, y, shape, num=10**6):
    problem = make_problem(model, as_rows(x, y, None, "added"), None)
    return find_blocks(problem, problem.parameters.start, np.arange(len(y)), num, shape, KEY)


def total(model, found):
    parameters = Parameters(model)
    parts = [likelihood_and_gradient(parameters, parameters.start, some) for some in found]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


@pytest.mark.parametrize(("name", "n"), [("Matern32", 7), ("sum", 100)])
def test_blocks_given_all_rows_before_are_the_exact_likelihood(name, n):
    x, y = data(n)
    model = dg.GaussianProcess(KERNELS[name], noise=0.2, mean=0.3)
    value, gradient = total(model, blocks_of(model, x, y, shape=Shape(16, n)))
    parameters = Parameters(model)
    exact, slope = exact_likelihood(parameters, parameters.start, as_group(x, y))
    assert value == pytest.approx(exact, rel=1e-9)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8)


def test_blocks_in_an_order_are_given_rows_of_earlier_groups_alone():
    x = np.random.default_rng(0).normal(size=(900, 2))
    cells = cut(x, 10, 10**6, np.random.default_rng(0))
    order, groups = blocks._in_turn(cells, len(x), np.random.default_rng(1))
    assert sorted(order) == list(range(900)) and len(groups) == blocks.GROUPS
    seen = 0
    for group, known in groups:
        assert known == seen
        seen += sum(len(cell) for cell in group)
        assert all(known <= cell.min() and cell.max() < seen for cell in group)
    assert {tuple(sorted(order[cell])) for group, _ in groups for cell in group} == {tuple(sorted(c)) for c in cells}


@pytest.mark.parametrize(("name", "n"), [("sum", 100)])
def test_blocks_given_all_other_rows_add_up_to_differences_of_exact_likelihoods(name, n):
    x, y = data(n)
    model = dg.GaussianProcess(KERNELS[name], noise=0.2, mean=0.3)
    found, parameters = blocks_of(model, x, y, shape=Shape(16, n, False)), Parameters(model)
    whole = exact_likelihood(parameters, parameters.start, as_group(x, y))
    expected, slope = 0.0, np.zeros_like(parameters.start)
    for rows, there in ((*pair,) for some in found for pair in zip(some.x, some.mask, strict=True)):
        given = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in rows[:-16][there[:-16]]]
        parts = exact_likelihood(parameters, parameters.start, as_group(x[given], y[given])) if given else (0.0, 0.0)
        if there.any():  # batches are filled up with empty blocks
            expected, slope = expected + whole[0] - parts[0], slope + whole[1] - parts[1]
    value, gradient = total(model, found)
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)


def test_a_block_is_the_conditional_density_of_its_own_rows():
    x, y = data(300)
    model = dg.GaussianProcess(KERNELS["sum"], noise=0.2, mean=0.3)

    def dense(rows, targets):
        return scipy.stats.multivariate_normal.logpdf(
            targets[:, 0] - 0.3, cov=np.asarray(model.kernel(rows, rows)) + 0.2 * np.eye(len(rows))
        )

    parameters, expected = Parameters(model), 0.0
    (some,) = blocks_of(model, x, y, num=5, shape=Shape(16, 24))
    with jax.enable_x64(True):
        for rows, targets, mask in zip(some.x, some.y, some.mask, strict=True):
            given = mask & (np.arange(len(mask)) < len(mask) - some.own)
            if mask.any():
                expected += dense(rows[mask], targets[mask]) - (
                    dense(rows[given], targets[given]) if given.any() else 0.0
                )
    assert likelihood(parameters, parameters.start, some) == pytest.approx(expected, rel=1e-9)
    value, gradient = likelihood_and_gradient(parameters, parameters.start, some)
    assert value == pytest.approx(expected, rel=1e-9)
    for i in range(len(gradient)):  # central differences
        step = 1e-5 * np.eye(len(gradient))[i]
        difference = [likelihood(parameters, parameters.start + sign * step, some) for sign in (1, -1)]
        assert gradient[i] == pytest.approx((difference[0] - difference[1]) / 2e-5, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("num", [1, 5, 1000])
def test_neighbourhoods_are_disjoint_small_and_near(num):
    x = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    cells = cut(x, 32, num, np.random.default_rng(1))
    assert len(cells) == min(num, 32)
    together = np.concatenate(cells)
    assert len(np.unique(together)) == len(together)
    assert num < 1000 or len(together) == 1000
    assert all(16 <= len(cell) <= 32 for cell in cells)
    assert np.mean([np.var(x[cell], axis=0).sum() for cell in cells]) < 0.3 * np.var(x, axis=0).sum()


def test_every_row_is_in_as_many_samples_of_blocks_as_any_other():
    x, counts = np.random.default_rng(0).normal(size=(70, 2)), np.zeros(70)
    for seed in range(400):
        for cell in cut(x, 8, 3, np.random.default_rng(seed)):
            counts[cell] += 1
    assert counts.min() > 0.7 * counts.mean() and counts.max() < 1.3 * counts.mean()


@pytest.mark.parametrize("tree_from", [0, 1 << 40])
@pytest.mark.parametrize("known", [600, 400])
def test_a_block_is_given_the_nearest_rows_that_are_not_its_own(monkeypatch, tree_from, known):
    monkeypatch.setattr(blocks, "TREE_FROM", tree_from)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3)).astype(np.float32)
    cells = cut(x, 20, 1000, rng)
    for cell, given in zip(cells, find_given(x, cells, 60, known), strict=True):
        assert len(given) == len(np.unique(given)) == 60 and given.max() < known
        others = np.setdiff1d(np.arange(known), cell)
        distances = np.linalg.norm(x[others] - x[cell][:, None], axis=2)
        order = np.argsort(distances, axis=1)
        its_own = np.array(
            [np.sum(np.linalg.norm(x[cell] - row, axis=1) < distances[i, order[i, 0]]) for i, row in enumerate(x[cell])]
        )
        assert set(others[order[its_own < blocks.EACH, 0]]) <= set(given)


@pytest.mark.parametrize("num", [5, 100])
def test_a_block_is_given_all_other_rows_where_these_are_fewer_than_asked_for(num):
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    cells = cut(x, 8, 1000, np.random.default_rng(0))
    for cell, given in zip(cells, find_given(x, cells, num, 30), strict=True):
        assert len(given) == min(num, 30 - len(cell)) and not np.isin(given, cell).any()


def test_a_prediction_is_that_of_the_nearest_rows():
    x, y = data(200)
    model = dg.GaussianProcess(dg.Matern32([0.5, 1.0, 3.0]), noise=0.1, mean=0.2)
    problem = make_problem(model, as_rows(x, y, None, "added"), None)
    (some,) = find_predictions(problem, problem.parameters.start, np.arange(190), np.arange(190, 200), 190)
    expected = log_likelihood(model, x[:191], y[:191]) - log_likelihood(model, x[:190], y[:190])
    alone = some._replace(x=some.x[:1], y=some.y[:1], mask=some.mask[:1])
    assert likelihood(problem.parameters, problem.parameters.start, alone) == pytest.approx(expected, rel=1e-8)


def test_short_scales_are_found_from_a_start_that_calls_them_noise():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(3000, 1))
    y = np.sin(150 * x[:, 0]) + 0.1 * rng.normal(size=3000)
    start = dg.GaussianProcess(dg.Matern32([3.0]), noise=1.0)
    model = start.learn(x, y, key=KEY, method=Neighbours())
    assert float(model.noise) == pytest.approx(0.01, rel=0.3)


def test_inputs_that_do_not_matter_are_found_with_few_rows_for_each():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2500, 16))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=2500)
    start = dg.GaussianProcess(dg.Matern52(np.full(16, 4.0)), noise=0.1)
    model = start.learn(x, y, key=KEY, method=Neighbours())
    assert float(model.noise) == pytest.approx(0.09, rel=0.2)
    assert model.kernel.lengthscale[3:].min() > 10 * model.kernel.lengthscale[0]


TRUTHS = {"Matern12": dg.Matern12(0.5), "Matern32": dg.Matern32(0.5), "Matern52": dg.Matern52(0.3), "RBF": dg.RBF(0.1)}
BY_BLOCKS = Neighbours(size=32, num_near=32, num_blocks=64)


@pytest.mark.parametrize(
    ("name", "method"), [*((name, Exact(num_starts=1)) for name in TRUTHS), ("Matern12", BY_BLOCKS), ("RBF", BY_BLOCKS)]
)
def test_the_kernel_that_made_the_data_is_chosen(name, method):
    n = 400 if isinstance(method, Exact) else 3000
    made = prior_draw(dg.GaussianProcess(TRUTHS[name], noise=1e-4), n, d=2, key=jax.random.key(1))
    learned = dg.learn(None, made.x, made.y, key=KEY, method=method)
    assert type(learned.model.kernel).__name__ == name, learned.message
    assert name in learned.message and learned.kernels[name] == 0.0
    assert len(learned.kernels) >= 3 and all(np.isfinite(list(learned.kernels.values())))


def test_blocks_are_given_all_other_rows_where_predictions_gain_by_it(monkeypatch):
    # Stations with a climate of their own, and weather: no stationary kernel with one lengthscale for years is right.
    rng = np.random.default_rng(0)
    places, years = rng.uniform(size=(150, 2)), np.arange(24.0)
    climate = np.sin(9 * places[:, 0]) + np.cos(11 * places[:, 1])
    weather = np.sin(7 * places @ rng.normal(size=(2, 24)) + rng.uniform(0, 6, 24))
    x = np.column_stack([np.repeat(places, 24, axis=0), np.tile(years, 150)])
    y = (climate[:, None] + 0.5 * weather).ravel() + 0.1 * rng.normal(size=len(x))
    order = rng.permutation(len(x))
    train, test = order[:3000], order[3000:]
    start, errors, shapes, find = dg.GaussianProcess(dg.Matern32([0.5, 0.5, 5.0]), 0.1), [], [], vecchia.find_blocks
    monkeypatch.setattr(vecchia, "find_blocks", lambda *a: shapes.append(a[4]) or find(*a))
    for margin in (vecchia.ORDER_MARGIN, np.inf):
        monkeypatch.setattr(vecchia, "ORDER_MARGIN", margin)
        model = start.learn(x[train], y[train], key=KEY, method=Neighbours(size=32, num_near=64, num_blocks=64))
        near = model.condition(x[train], y[train], num_far=0, neighbours=64, num_samples=0, key=KEY)
        errors.append((shapes[-1].is_ordered, dg.metrics.nll(y[test], *near.predict(x[test], noise=True))))
    (is_ordered, free), (_, ordered) = errors
    assert not is_ordered and free < ordered - 0.005


def test_a_kernel_that_was_given_stays():
    x, y = data(300)
    learned = dg.learn(dg.GaussianProcess(dg.RBF([1.0, 1.0, 1.0]), noise=0.1), x, y, key=KEY)
    assert isinstance(learned.model.kernel, dg.RBF) and not learned.kernels
    with pytest.raises(ValueError, match=r"Other kernels can be compared with Matern12, .*, not with Sum"):
        dg.learn(dg.GaussianProcess(KERNELS["sum"], noise=0.1), x, y, key=KEY, choose_kernel=True)


def test_more_blocks_are_taken_until_they_do_not_help(monkeypatch):
    made = prior_draw(dg.GaussianProcess(dg.Matern32(0.3), noise=0.1), 6000, d=2, key=KEY)
    asked, find = [], vecchia.find_blocks
    monkeypatch.setattr(vecchia, "find_blocks", lambda *a: asked.append(a[3]) or find(*a))
    start, settings = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5), {"size": 8, "num_near": 16, "num_steps": 5}
    for gain, enough, expected in (
        (10.0, 10**6, [24, 96, 96, 384]),
        (1e-9, 500, [24, 96, 96, 384]),  # 2,000 rows are enough for four parameters
        (1e-9, 10**6, [24, 96, 96, 384, 1024, 1024]),  # all of them, cut anew once
    ):
        asked.clear()
        monkeypatch.setattr(vecchia, "ROWS_PER_PARAMETER", enough)
        start.learn(made.x, made.y, key=KEY, method=Neighbours(**settings, gain=gain))
        assert asked == expected
