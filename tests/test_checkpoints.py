"""An interrupted solve goes on where it was, by itself (`start=`) or from a file (`checkpoint=`)."""

import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data

KEY = jax.random.key(0)
X, Y = data(120)
SOLVERS = {
    "SDD": dg.SDD(step_size=2.0, batch_size=30, num_steps=400, averaging=0.05, tol=0.0),
    "BlockDescent": dg.BlockDescent(block_size=20, max_passes=45.0, tol=0.0),
}
each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def solve(solver, kernel=KERNELS["Matern32"], y=Y, memory=None, key=KEY, **run):
    return dg.solve(dg.KernelOperator(kernel, X, NOISE, memory=memory), y, solver, key=key, **run)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "solve.ckpt"


@each_solver
def test_two_halves_are_one_run(solver):
    half = solve(solver, max_passes=17.6)
    both = solve(solver, start=half, max_passes=17.6)
    whole = solve(solver, max_passes=35.1)
    assert half.steps < both.steps == whole.steps
    np.testing.assert_array_equal(both.weights, whole.weights)


@each_solver
def test_a_checkpoint_continues_to_the_same_weights(solver, file):
    whole = solve(solver)
    part = solve(solver, max_passes=20.0, checkpoint=file)
    rest = solve(solver, checkpoint=file)
    assert part.steps < rest.steps == whole.steps
    np.testing.assert_array_equal(rest.weights, whole.weights)


@pytest.mark.parametrize(
    "other",
    [
        {"y": Y + 1.0},
        {"key": jax.random.key(1)},
        {"kernel": dg.Matern32(0.5, 1.3)},
        {"kernel": dg.RBF(0.9, 1.3)},
        {"solver": dg.SDD(step_size=1.0, batch_size=30, num_steps=400, averaging=0.05, tol=0.0)},
    ],
    ids=["targets", "key", "lengthscale", "kernel", "step-size"],
)
def test_a_checkpoint_of_another_solve_is_refused(other, file):
    same = {"solver": SOLVERS["SDD"], "memory": 0, "max_passes": 2.0, "checkpoint": file}
    solve(**same)
    with pytest.raises(ValueError, match="belongs to another problem"):
        solve(**same | other)


def test_a_damaged_checkpoint_is_refused(file):
    file.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="is not a checkpoint, or was damaged"):
        solve(SOLVERS["SDD"], checkpoint=file)


def test_a_checkpoint_needs_a_folder(file):
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        solve(SOLVERS["SDD"], checkpoint=file.parent / "missing" / "solve.ckpt")


def test_refining_a_posterior_lowers_its_residual_and_keeps_its_prior_functions():
    early = dg.GaussianProcess(KERNELS["Matern32"], NOISE).condition(
        X, Y, solver=dg.BlockDescent(block_size=20), max_passes=2.0, num_samples=3, num_features=64, key=KEY
    )
    refined = early.refine(solver=dg.BlockDescent(block_size=20, tol=1e-4), key=KEY)
    assert refined.prior is early.prior
    assert refined.solution.residual.max() <= 1e-4 < early.solution.residual.max()


KILLED = """
import os, signal, sys
import jax, numpy as np
import dualgp as dg
from dualgp.solvers import loop

loop.CHECKPOINT_SECONDS = 0.0
advance, calls = loop._advance, []

def advance_and_die(*arguments):
    calls.append(None)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(*arguments)

loop._advance = advance_and_die
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 3)).astype(np.float32)
operator = dg.KernelOperator(dg.Matern32(), x, 0.01)
solver = dg.BlockDescent(tol=1e-3)
solution = dg.solve(operator, np.sin(x[:, 0]), solver, key=jax.random.key(0), checkpoint=sys.argv[1] + ".ckpt")
np.save(sys.argv[1], solution.weights)
"""


def test_a_killed_process_ends_with_the_weights_of_an_undisturbed_one(tmp_path):
    def run(name, die_at):
        return subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name), str(die_at)], timeout=300).returncode

    assert run("killed", 3) == -signal.SIGKILL
    assert run("killed", 0) == 0
    assert run("undisturbed", 0) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "killed.npy"), np.load(tmp_path / "undisturbed.npy"))


def test_a_checkpoint_does_not_ask_whether_K_was_kept(tmp_path):
    path, solver = tmp_path / "run.checkpoint", SOLVERS["BlockDescent"]
    for memory in (None, 0):
        operator = dg.KernelOperator(KERNELS["Matern32"], X, NOISE, memory=memory)
        solution = dg.solve(operator, Y, solver, key=KEY, checkpoint=path, max_passes=2 if memory is None else None)
    assert solution.passes > 10
