"""Budgets that are too short to converge on all rows: spent on some of the rows, without losing anything else."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, gram, points, shifted_gram
from dualgp.checkpoints import Checkpoint
from dualgp.operators import DenseOperator
from dualgp.operators.sharded import ShardedOperator
from dualgp.solvers import loop, part
from dualgp.solvers.base import Trace
from dualgp.solvers.part import enough_passes, probe_rows, rows_for

KERNEL, KEY, N = KERNELS["Matern32"], jax.random.key(0), 2000
X, X_NEW = points(N), points(40, seed=3)
Y = np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=N)
SOLVER = dg.BlockDescent(block_size=40)


@pytest.fixture(autouse=True)
def these_are_many_rows(monkeypatch):
    monkeypatch.setattr(part, "MANY_ROWS", N - 1)
    monkeypatch.setattr(part, "FEWEST_ROWS", 20)
    monkeypatch.setattr("dualgp.solvers.residual.FRESH_ROWS", 300)


def solve(b=Y, solver=SOLVER, make=dg.KernelOperator, settings=None, **run):
    return dg.solve(make(KERNEL, X, NOISE, **settings or {}), b, solver, key=KEY, **run)


def rows_with_weights(solution):
    return np.flatnonzero(solution.weights)


def test_a_budget_is_enough_passes_over_the_rows_that_it_is_spent_on():
    n, probed = 10**6, 50_000
    for passes in (0.05, 0.5, 4.0):
        rows = rows_for(passes, n, needed=5.0, probed=probed)
        needed = 5.0 * (rows / probed) ** part.GROWTH
        assert needed * (rows / n) ** 2 == pytest.approx(passes, rel=1e-4)
    assert rows_for(1e-30, n, needed=5.0, probed=n) == part.FEWEST_ROWS
    assert rows_for(np.inf, n, needed=5.0, probed=n) == n


def test_a_probe_takes_a_small_share_of_the_budget():
    for passes in (0.01, 0.3, 9.0):
        rows = probe_rows(passes, 10**6)
        assert part.PLENTY_OF_PASSES * (rows / 10**6) ** 2 == pytest.approx(0.05 * passes, rel=1e-3)


def test_equations_that_need_more_passes_get_fewer_rows():
    few, many = (
        len(rows_with_weights(dg.solve(dg.KernelOperator(KERNEL, X, noise), Y, SOLVER, key=KEY, max_passes=1.0)))
        for noise in (1e-3, 1.0)
    )
    assert few < many


def test_a_short_budget_solves_the_equations_of_some_rows():
    solution = solve(max_passes=1.0)
    used = rows_with_weights(solution)
    assert part.FEWEST_ROWS < len(used) < N
    A = shifted_gram(KERNEL, X)[np.ix_(used, used)]
    assert np.linalg.norm(A @ solution.weights[used] - Y[used]) < 0.2 * np.linalg.norm(Y[used])
    assert solution.result is dg.Result.BUDGET_REACHED and solution.passes < 1.3
    assert f"too short for all rows, on {len(used):,} of {N:,}:" in solution.message


def test_it_predicts_better_than_as_many_steps_over_all_rows(monkeypatch):
    truth = gram(KERNEL, X_NEW, X) @ np.linalg.solve(shifted_gram(KERNEL, X, noise=0.01), Y)

    def error(seed, many):
        monkeypatch.setattr(part, "MANY_ROWS", many)
        operator = dg.KernelOperator(KERNEL, X, 0.01)
        weights = dg.solve(operator, Y, SOLVER, key=jax.random.key(seed), max_passes=0.25).weights
        return np.sqrt(np.mean((gram(KERNEL, X_NEW, X) @ weights - truth) ** 2))

    errors = np.array([[error(seed, many) for many in (N - 1, N)] for seed in range(6)])
    assert np.median(errors[:, 0] / errors[:, 1]) < 0.9


def test_the_residual_is_that_of_all_rows(monkeypatch):
    monkeypatch.setattr("dualgp.solvers.residual.FRESH_ROWS", N)
    solution = solve(max_passes=0.5)
    residual = Y - shifted_gram(KERNEL, X) @ solution.weights
    np.testing.assert_allclose(solution.residual, np.linalg.norm(residual) / np.linalg.norm(Y), rtol=1e-6)


def test_enough_of_a_budget_changes_nothing(monkeypatch):
    first = solve(max_passes=12.0)
    monkeypatch.setattr(part, "MANY_ROWS", N)
    np.testing.assert_array_equal(solve(max_passes=12.0).weights, first.weights)


def test_seconds_are_a_budget_too():
    hurried = solve(max_seconds=1e-3)
    assert part.FEWEST_ROWS <= len(rows_with_weights(hurried)) < N / 2
    assert solve(max_seconds=600.0).result is dg.Result.CONVERGED


def test_weights_to_start_from_are_not_given_up():
    start = solve(max_passes=0.5)
    further = solve(start=start, max_passes=0.5)
    assert set(rows_with_weights(start)) < set(rows_with_weights(further))
    assert solve(start=start).result is dg.Result.CONVERGED


def test_other_solvers_go_over_all_rows():
    solver = dg.SDD(step_size=2.0, batch_size=60, num_steps=5, tol=0.0)
    assert "rows" not in solve(solver=solver, max_passes=0.5).message


@pytest.mark.parametrize("budget", [0.3, 1.0])
def test_the_weights_are_a_linear_map_of_the_right_hand_side(budget, monkeypatch):
    """From which it follows that the variance of samples is never below the exact one (test_overconfidence.py)."""
    monkeypatch.setattr(part, "SMALL_ERROR", 0.0)  # the number of rows, like that of steps, may depend on b
    solver = dg.BlockDescent(block_size=40, tol=0.0)
    linear_map = solve(np.eye(N), solver, max_passes=budget).weights
    np.testing.assert_allclose(solve(Y, solver, max_passes=budget).weights, linear_map @ Y, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("saves", [1, 3])
def test_work_on_some_rows_is_saved_too(saves, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(loop, "CHUNK_ENTRIES", 1.0)
    whole, file = solve(max_passes=1.0), tmp_path / "solve.ckpt"
    save, taken = Checkpoint.save, []

    def save_and_die(self, *state):
        save(self, *state)
        taken.append(self.path.name)
        if len(taken) == saves:
            raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Checkpoint, "save", save_and_die)
        solve(max_passes=1.0, checkpoint=file)
    assert set(taken) == {f"solve.ckpt.{len(rows_with_weights(whole))}-rows"}
    again = solve(max_passes=1.0, checkpoint=file)
    np.testing.assert_array_equal(again.weights, whole.weights)
    assert [path.name for path in tmp_path.iterdir()] == ["solve.ckpt"]
    assert solve(checkpoint=file).result is dg.Result.CONVERGED  # over all rows, from there
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", [3, 30])  # during the probe, and after it
def test_an_interrupted_run_returns_what_there_is(when, monkeypatch):
    take, taken = loop.Loop.take, []

    def interrupted(self, num):
        taken.append(self.operator.n)
        if len(taken) == when:
            raise KeyboardInterrupt
        return take(self, num)

    monkeypatch.setattr(loop, "CHUNK_ENTRIES", 1.0)
    monkeypatch.setattr(loop.Loop, "take", interrupted)
    solution = solve(max_passes=1.0)
    assert solution.result is dg.Result.INTERRUPTED and "was interrupted" in solution.message
    assert 0 < len(rows_with_weights(solution)) < N and len(taken) == when


def test_operators_agree_on_what_a_part_is():
    index = np.array([5, 17, 300, N - 1], np.int32)
    expected = shifted_gram(KERNEL, X)[np.ix_(index, index)]
    dense = DenseOperator(gram(KERNEL, X), NOISE)
    for operator in (
        dg.KernelOperator(KERNEL, X, NOISE, memory=0),
        dg.KernelOperator(KERNEL, X, NOISE),
        dense,
        ShardedOperator(KERNEL, X, NOISE, mesh=1),
    ):
        np.testing.assert_allclose(operator.part(index).dense(), expected, rtol=1e-10)
    assert dg.KernelOperator(KERNEL, X, NOISE, memory=0).part(index).kept is None


def test_a_mesh_makes_no_difference():
    plain = solve(max_passes=0.5)
    spread = solve(max_passes=0.5, make=ShardedOperator, settings={"mesh": 1})
    np.testing.assert_allclose(spread.weights, plain.weights, rtol=1e-6, atol=1e-8)


def test_what_goes_wrong_on_some_rows_is_said(monkeypatch):
    monkeypatch.setattr(loop, "MOST_SLOWDOWNS", 0)
    monkeypatch.setattr(loop.Loop, "_has_blown_up", lambda self: self.operator.n < N)
    solution = solve(max_passes=1.0)
    assert solution.result is dg.Result.DIVERGED and "Raise the noise" in solution.message
    assert np.isfinite(solution.weights).all()


def test_enough_passes_are_those_after_which_the_residual_is_small_against_the_error():
    residual = np.array([[0.5, 0.4], [0.2, 0.05], [0.05, 0.02], [0.01, 0.01]])
    trace = Trace(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]), np.arange(4.0), residual)
    assert enough_passes(trace, np.array([1.0, 1.0]), 0.01) == 3.0
    assert enough_passes(trace, np.array([1.0, 0.1]), 0.01) == 4.0
    assert enough_passes(trace, np.array([1.0, 0.01]), 0.01) == 4.0  # the probe has converged
    assert enough_passes(trace, np.array([1.0, 0.01]), 0.0) == 2.0 * part.PLENTY_OF_PASSES
