"""Budgets that are too short for a pass: spent on some of the rows, without losing anything else."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, gram, points, shifted_gram
from dualgp.checkpoints import Checkpoint
from dualgp.operators import DenseOperator
from dualgp.operators.sharded import ShardedOperator
from dualgp.solvers import loop, part
from dualgp.solvers.part import rows_for

KERNEL, KEY, N = KERNELS["Matern32"], jax.random.key(0), 600
X, X_NEW = points(N), points(40, seed=3)
Y = np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=N)
SOLVER = dg.BlockDescent(block_size=60)


@pytest.fixture(autouse=True)
def these_are_many_rows(monkeypatch):
    monkeypatch.setattr(loop, "MANY_ROWS", N - 1)
    monkeypatch.setattr(part, "FEWEST_ROWS", 20)
    monkeypatch.setattr("dualgp.solvers.residual.FRESH_ROWS", 30)


def solve(b=Y, solver=SOLVER, make=dg.KernelOperator, settings=None, **run):
    return dg.solve(make(KERNEL, X, NOISE, **settings or {}), b, solver, key=KEY, **run)


def rows_with_weights(solution):
    return np.flatnonzero(solution.weights)


def test_a_budget_is_two_passes_over_the_rows_that_it_is_spent_on():
    for passes, rows in ((2.0, 10**6), (1.99, 707107), (1.0, 707107), (0.5, 500000), (0.499, 353553)):
        assert rows_for(passes, 10**6) == rows
    assert rows_for(1e-30, 10**6) == part.FEWEST_ROWS
    assert rows_for(np.inf, 10**6) == 10**6


def test_a_short_budget_solves_the_equations_of_some_rows():
    solution = solve(max_passes=1.0)
    used = rows_with_weights(solution)
    assert len(used) == rows_for(1.0, N) < N
    A = shifted_gram(KERNEL, X)[np.ix_(used, used)]
    assert np.linalg.norm(A @ solution.weights[used] - Y[used]) < 0.2 * np.linalg.norm(Y[used])
    assert solution.result is dg.Result.BUDGET_REACHED and solution.passes < 1.3
    assert f"too short for a pass, on {len(used)} of {N} rows" in solution.message


def test_it_predicts_better_than_as_many_steps_over_all_rows(monkeypatch):
    truth = gram(KERNEL, X_NEW, X) @ np.linalg.solve(shifted_gram(KERNEL, X), Y)

    def error(seed, many):
        monkeypatch.setattr(loop, "MANY_ROWS", many)
        operator = dg.KernelOperator(KERNEL, X, NOISE)
        weights = dg.solve(operator, Y, SOLVER, key=jax.random.key(seed), max_passes=0.5).weights
        return np.sqrt(np.mean((gram(KERNEL, X_NEW, X) @ weights - truth) ** 2))

    errors = np.array([[error(seed, many) for many in (N - 1, N)] for seed in range(6)])
    assert np.median(errors[:, 0] / errors[:, 1]) < 0.7


def test_the_residual_is_that_of_all_rows(monkeypatch):
    monkeypatch.setattr("dualgp.solvers.residual.FRESH_ROWS", N)
    solution = solve(max_passes=0.5)
    residual = Y - shifted_gram(KERNEL, X) @ solution.weights
    np.testing.assert_allclose(solution.residual, np.linalg.norm(residual) / np.linalg.norm(Y), rtol=1e-6)


def test_enough_of_a_budget_changes_nothing(monkeypatch):
    first = solve(max_passes=2.5)
    monkeypatch.setattr(loop, "MANY_ROWS", N)
    np.testing.assert_array_equal(solve(max_passes=2.5).weights, first.weights)


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
def test_the_weights_are_a_linear_map_of_the_right_hand_side(budget):
    """From which it follows that the variance of samples is never below the exact one (test_overconfidence.py)."""
    solver = dg.BlockDescent(block_size=60, tol=0.0)
    linear_map = solve(np.eye(N), solver, max_passes=budget).weights
    np.testing.assert_allclose(solve(Y, solver, max_passes=budget).weights, linear_map @ Y, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("saves", [1, 3])
def test_work_on_some_rows_is_saved_too(saves, tmp_path, monkeypatch):
    whole, file = solve(max_passes=1.0), tmp_path / "solve.ckpt"
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(loop, "CHUNK_ENTRIES", 1.0)
    save, taken = Checkpoint.save, []

    def save_and_die(self, *state):
        save(self, *state)
        taken.append(self.path.name)
        if len(taken) == saves:
            raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Checkpoint, "save", save_and_die)
        solve(max_passes=1.0, checkpoint=file)
    assert set(taken) == {f"solve.ckpt.{rows_for(1.0, N)}-rows"}
    again = solve(max_passes=1.0, checkpoint=file)
    np.testing.assert_array_equal(again.weights, whole.weights)
    assert [path.name for path in tmp_path.iterdir()] == ["solve.ckpt"]
    assert solve(checkpoint=file).result is dg.Result.CONVERGED  # over all rows, from there
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_returns_what_there_is(monkeypatch):
    take, taken = loop._Loop._take, []

    def interrupted(self, num):
        taken.append(self.operator.n)
        if len(taken) == 3:
            raise KeyboardInterrupt
        return take(self, num)

    monkeypatch.setattr(loop, "CHUNK_ENTRIES", 1.0)
    monkeypatch.setattr(loop._Loop, "_take", interrupted)
    solution = solve(max_passes=1.0)
    assert solution.result is dg.Result.INTERRUPTED and "was interrupted" in solution.message
    assert 0 < len(rows_with_weights(solution)) <= rows_for(1.0, N) and len(taken) == 3


def test_operators_agree_on_what_a_part_is():
    index = np.array([5, 17, 300, 599], np.int32)
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


def test_steps_that_turn_out_slower_leave_time_for_fewer_rows(monkeypatch):
    allowed = iter([(60.0, 1.0), (60.0, 0.5), (60.0, 2.0)])  # of all rows, of some of them, and of some of those
    monkeypatch.setattr(loop, "MANY_ROWS", 20)
    monkeypatch.setattr(loop._Loop, "_affordable", lambda self: next(allowed))
    solution = solve(max_seconds=600.0)
    rows = rows_for(0.5, rows_for(1.0, N))
    assert len(rows_with_weights(solution)) == rows and f"on {rows} of {N} rows" in solution.message


def test_what_goes_wrong_on_some_rows_is_said(monkeypatch):
    monkeypatch.setattr(loop, "MOST_SLOWDOWNS", 0)
    monkeypatch.setattr(loop._Loop, "_has_blown_up", lambda self: self.operator.n < N)
    solution = solve(max_passes=1.0)
    assert solution.result is dg.Result.DIVERGED and "Raise the noise" in solution.message
    assert np.isfinite(solution.weights).all()
