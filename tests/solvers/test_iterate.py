"""The one loop: budgets, stopping, interruption, warm starts, divergence."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, relative, shifted_gram
from dualgp._arrays import wide
from dualgp.solvers import Deadline, iterate
from dualgp.solvers.base import Run

KERNEL, KEY, N = KERNELS["Matern32"], jax.random.key(0), 200
FIXED = dg.SDD(step_size=2.0, batch_size=50, num_steps=600, averaging=0.05, tol=0.0)
ENDLESS = dg.SDD(step_size=2.0, batch_size=50, num_steps=10**9, averaging=0.05, tol=0.0)


@pytest.fixture(scope="module")
def problem():
    x, y = data(N)
    return dg.KernelOperator(KERNEL, x, NOISE), y


def solve(problem, solver, **run):
    return dg.solve(*problem, solver, key=KEY, **run)


def test_tol_zero_runs_every_step(problem):
    solution = solve(problem, FIXED)
    assert (solution.steps, solution.result) == (600, dg.Result.BUDGET_REACHED)
    assert "all of its 600 steps" in solution.message


def test_a_tolerance_stops_early_and_is_met(problem):
    solution = solve(problem, dg.SDD(step_size=2.0, batch_size=50, averaging=0.05, tol=1e-2))
    assert solution.result is dg.Result.CONVERGED
    assert solution.steps < 5000
    assert relative(problem[1] - problem[0].dense() @ solution.weights, problem[1]) <= 1e-2


def test_max_passes_limits_the_steps(problem):
    solution = solve(problem, ENDLESS, max_passes=10.0)
    assert solution.steps == 10 * N / 50
    assert solution.passes == pytest.approx(10.0 + 1.0)  # and one for the final check
    assert solution.result is dg.Result.BUDGET_REACHED


@pytest.fixture
def slow_steps(monkeypatch):
    """A step takes 0.05 s and a check 0.5 s: as the loop expects of steps of a tenth of a pass."""
    advance, check = iterate._advance, iterate.check_residual

    def slow_advance(*arguments):
        time.sleep(0.05 * int(arguments[-1]))
        return advance(*arguments)

    def slow_check(*arguments):
        time.sleep(0.5)
        return check(*arguments)

    monkeypatch.setattr(iterate, "_advance", slow_advance)
    monkeypatch.setattr(iterate, "check_residual", slow_check)


TENTHS = dg.SDD(step_size=2.0, batch_size=N // 10, num_steps=10**9, averaging=0.05, tol=0.0)


@pytest.mark.parametrize("limit", [1.5, 2.2])
def test_a_time_limit_is_kept_and_used(problem, slow_steps, limit):
    solve(problem, TENTHS, max_passes=0.1)  # compiled before
    began = time.perf_counter()
    solution = solve(problem, TENTHS, max_seconds=limit)
    seconds = time.perf_counter() - began
    assert 0.6 * limit <= seconds <= 1.1 * limit
    assert solution.result is dg.Result.BUDGET_REACHED
    assert solution.steps >= 0.6 * (limit - 0.5) / 0.05


def test_a_deadline_that_has_begun_counts_from_there(problem, slow_steps):
    deadline = Deadline(2.0)
    time.sleep(1.0)
    solution = solve(problem, TENTHS, max_seconds=deadline)
    assert deadline.elapsed <= 2.4
    assert solution.seconds < 1.4


def test_one_step_is_taken_however_short_the_time(problem):
    solution = solve(problem, ENDLESS, max_seconds=1e-6)
    assert solution.steps == 1
    assert np.any(solution.weights != 0)


def test_five_seconds_are_five_seconds_on_thirty_thousand_rows():
    x, y = data(30_000, dtype=np.float32)
    b = np.stack([y] * 17, axis=1)
    operator = dg.KernelOperator(KERNEL, x, NOISE, memory=0)
    began = time.perf_counter()
    solution = dg.solve(operator, b, dg.Auto(tol=1e-6), key=KEY, max_seconds=5.0)
    assert time.perf_counter() - began <= 1.1 * 5.0 + 2.0
    assert solution.result is dg.Result.BUDGET_REACHED


def test_a_warm_start_of_conjugate_gradients_costs_a_pass(problem):
    solver = dg.CG(tol=1e-12, preconditioner=dg.PivotedCholesky(rank=20), max_iterations=3)
    cold = solve(problem, solver)
    warm = solve(problem, solver, start=0.5 * cold.weights)
    assert cold.passes == pytest.approx(20 / N + 3 * 1.1 + 1.0)
    assert warm.passes == pytest.approx(cold.passes + 1.0 + 1.0)  # for its residual, and for the check of the start


@pytest.mark.parametrize(
    ("solver", "run"),
    [
        (dg.SDD(step_size=2.0, batch_size=50, averaging=0.05, tol=1e-2), {}),
        (dg.SDD(step_size=20.0, batch_size=50), {}),
        (ENDLESS, {"max_passes": 3.0}),
        (dg.CG(tol=1e-12, preconditioner=None), {"max_passes": 8.0}),
    ],
    ids=["converged", "diverged", "stopped", "worse than before"],
)
def test_what_is_returned_is_what_was_checked(problem, solver, run):
    solution = solve(problem, solver, **run)
    true = relative(problem[1] - problem[0].dense() @ solution.weights, problem[1])
    assert solution.residual[0] == pytest.approx(true, rel=1e-9)


def test_an_earlier_iterate_is_checked_again_before_it_is_returned(problem):
    with wide():
        operator, b = problem[0], jnp.asarray(problem[1])[:, None]
        run = iterate.Loop(dg.BlockDescent(block_size=20, tol=0.0), operator, b, Run(KEY))
        run._take(5)
        early, checked = run.state, run._check()
        run._take(40)
        run._check()
        run.last_good = early
        run.progress.level = replace(run.progress.level, now=3.0 * run.progress.level.smallest)
        solution = run.finish(dg.Result.BUDGET_REACHED)
    np.testing.assert_allclose(solution.residual, checked.estimate, rtol=1e-9)
    true = relative(problem[1] - operator.dense() @ np.asarray(solution.weights)[:, 0], problem[1])
    assert solution.residual[0] == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("solver", [dg.SDD(), dg.BlockDescent(), dg.CG(), dg.SGD(batch_size=64)], ids=type)
def test_settings_of_a_prepared_solver_have_nothing_left_to_prepare(problem, solver):
    with wide():
        operator, b = problem[0], jnp.asarray(problem[1])[:, None]
        settings = solver.prepare(operator, b, KEY)[0].settings
        again, passes = settings.prepare(operator, b, KEY)
    assert type(settings) is type(solver) and passes == 0.0
    assert "auto" not in repr(settings)
    assert repr(again.settings) == repr(settings)


def test_ctrl_c_returns_the_iterate_so_far(problem, monkeypatch):
    advance, calls = iterate._advance, []

    def interrupted_third(*args):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*args)

    monkeypatch.setattr(iterate, "CHUNK_ENTRIES", 10 * 50 * N)  # 10 steps
    monkeypatch.setattr(iterate, "_advance", interrupted_third)
    solution = solve(problem, ENDLESS)
    monkeypatch.undo()
    assert solution.result is dg.Result.INTERRUPTED
    assert "interrupted" in solution.message
    until_then = solve(problem, ENDLESS, max_passes=solution.steps * 50 / N)
    assert until_then.steps == solution.steps > 0
    np.testing.assert_array_equal(solution.weights, until_then.weights)


def test_the_length_of_chunks_does_not_change_the_weights(problem, monkeypatch):
    whole = solve(problem, FIXED)
    monkeypatch.setattr(iterate, "CHUNK_ENTRIES", 3 * 50 * N)  # 3 steps
    pieces = solve(problem, FIXED)
    assert len(pieces.trace.steps) == 200 > len(whole.trace.steps)
    np.testing.assert_array_equal(pieces.weights, whole.weights)


def test_a_warm_start_needs_fewer_steps(problem):
    solver = dg.SDD(step_size=2.0, batch_size=50, averaging=0.05, tol=1e-3)
    cold = solve(problem, solver)
    warm = solve(problem, solver, start=cold.weights + 1e-3 * np.cos(problem[1]))
    assert warm.result is dg.Result.CONVERGED
    assert warm.steps < 0.7 * cold.steps


def test_a_warm_start_at_the_solution_stays_there(problem):
    exact = np.linalg.solve(problem[0].dense(), problem[1])
    solution = solve(problem, FIXED, start=exact)
    np.testing.assert_allclose(solution.weights, exact, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_diverged_warm_start_is_caught_and_is_no_worse_than_its_start(problem, share):
    start = share * np.linalg.solve(problem[0].dense(), problem[1])
    solution = solve(problem, dg.SDD(step_size=20.0, batch_size=50, num_steps=2000), start=start)
    assert solution.result is dg.Result.DIVERGED
    assert solution.residual.max() <= 1.01 * relative(problem[1] - problem[0].dense() @ start, problem[1])


def test_the_trace_counts_up_and_falls(problem):
    trace = solve(problem, FIXED).trace
    assert trace.steps[-1] == 600
    assert (np.diff(trace.passes) > 0).all() and (np.diff(trace.seconds) > 0).all()
    assert trace.residual.shape == (len(trace.steps), 1)
    assert trace.residual[-1, 0] < trace.residual[0, 0]


def test_zero_right_hand_sides_have_zero_weights(problem):
    solution = dg.solve(problem[0], np.zeros((N, 2)), dg.SDD(), key=KEY)
    assert solution.result is dg.Result.CONVERGED
    assert (solution.weights == 0).all() and (solution.residual == 0).all()


def test_a_progress_bar_appears_when_asked_for(problem, capsys):
    solve(problem, FIXED)
    assert capsys.readouterr().err == ""
    solve(problem, FIXED, progress=True)
    assert "residual" in capsys.readouterr().err


def test_float32_reaches_the_same_solution():
    x, y = data(N, dtype=np.float32)
    solution = dg.solve(dg.KernelOperator(KERNEL, x, NOISE), y, dg.SDD(tol=1e-3, averaging=0.05), key=KEY)
    assert solution.weights.dtype == np.float32
    assert relative(y - shifted_gram(KERNEL, x) @ solution.weights, y) <= 1e-3


def test_going_on_with_another_block_size_starts_from_the_weights(problem):
    before = solve(problem, dg.BlockDescent(block_size=80, tol=0.5), max_passes=2)
    for start in (before, before.weights):
        assert solve(problem, dg.BlockDescent(block_size=12, tol=1e-3), start=start).result is dg.Result.CONVERGED


def test_a_budget_below_one_step_is_one_step(problem):
    solution = solve(problem, dg.CG(tol=1e-6), max_passes=1)
    assert solution.steps == 1
    assert np.any(solution.weights != 0)
