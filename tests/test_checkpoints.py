"""An interrupted solve goes on where it was, by itself (`start=`) or from a file (`checkpoint=`)."""

import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data
from dualgp._npz import read, write
from dualgp.checkpoints import fingerprint
from dualgp.solvers import iterate

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


@pytest.fixture
def steps(monkeypatch):
    """The numbers of the steps that were taken, one by one."""
    advance, taken = iterate.advance, []

    def recording(prepared, operator, b, state, key, first, num):
        taken.extend(range(first, first + num))
        return advance(prepared, operator, b, state, key, first, num)

    monkeypatch.setattr(iterate, "advance", recording)
    return taken


@each_solver
def test_two_halves_are_one_run(solver, steps):
    half = solve(solver, max_passes=17.6)
    both = solve(solver, start=half, max_passes=17.6)
    assert 0 < half.steps < both.steps and steps == list(range(both.steps))
    whole = solve(solver, max_passes=35.1)
    assert both.steps == whole.steps
    np.testing.assert_array_equal(both.weights, whole.weights)


@each_solver
def test_a_checkpoint_continues_to_the_same_weights(solver, file, steps):
    first = solve(solver, max_passes=20.0, checkpoint=file)
    rest = solve(solver, checkpoint=file)
    assert 0 < first.steps < rest.steps and steps == list(range(rest.steps))
    whole = solve(solver)
    assert rest.steps == whole.steps
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
from dualgp.solvers import iterate

iterate.CHECKPOINT_SECONDS = 0.0
advance, firsts = iterate._advance, []

def advance_and_die(*arguments):
    firsts.append(int(arguments[-2]))
    if len(firsts) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(*arguments)

iterate._advance = advance_and_die
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 3)).astype(np.float32)
operator = dg.KernelOperator(dg.Matern32(), x, 0.01)
solver = dg.BlockDescent(tol=1e-3)
solution = dg.solve(operator, np.sin(x[:, 0]), solver, key=jax.random.key(0), checkpoint=sys.argv[1] + ".ckpt")
np.savez(sys.argv[1], weights=solution.weights, steps=solution.steps, first=firsts[0])
"""


def test_a_killed_process_ends_with_the_weights_of_an_undisturbed_one(tmp_path):
    def run(name, die_at):
        return subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name), str(die_at)], timeout=300).returncode

    assert run("killed", 3) == -signal.SIGKILL
    assert run("killed", 0) == 0
    assert run("undisturbed", 0) == 0
    killed, undisturbed = (np.load(tmp_path / f"{name}.npz") for name in ("killed", "undisturbed"))
    assert 0 == undisturbed["first"] < killed["first"] < killed["steps"] == undisturbed["steps"]
    np.testing.assert_array_equal(killed["weights"], undisturbed["weights"])


def test_a_checkpoint_does_not_ask_whether_K_was_kept(file, steps):
    solve(SOLVERS["BlockDescent"], memory=None, checkpoint=file, max_passes=2.0)
    solution = solve(SOLVERS["BlockDescent"], memory=0, checkpoint=file)
    assert solution.passes > 10 and steps == list(range(solution.steps))


def test_every_array_counts_in_a_fingerprint():
    zeros = np.zeros((1024, 1024), np.float32)
    other = zeros.copy()
    other[1000, 1000] = 1e-6
    prints = {fingerprint(array) for array in (zeros, other, zeros.T.astype(np.float64), zeros[:, :512])}
    assert len(prints) == 4
    assert fingerprint(zeros) == fingerprint(np.asfortranarray(zeros))


def write_again(file, header=None, arrays=None):
    """The file with another header or other arrays."""
    old_header, old_arrays = read(file)
    write(file, old_header | (header or {}), old_arrays if arrays is None else arrays(old_arrays))


@pytest.mark.parametrize(
    ("header", "arrays", "sentence"),
    [
        ({"dualgp": "0.0.1"}, None, f"was written by dualgp 0.0.1, this is {dg.__version__}: delete it to start anew"),
        ({"format": "dualgp-checkpoint-1"}, None, "is not a checkpoint, or was damaged .* Delete it to start anew"),
        (None, lambda old: {name: old[name] for name in list(old)[:-1]}, "holds other arrays .* Delete it"),
        (None, lambda old: {**old, "leaf99": np.zeros(3)}, "holds other arrays .* Delete it"),
        (None, lambda old: {name: array[:-1] if array.ndim else array for name, array in old.items()}, "other arrays"),
        (None, lambda old: {name: array.astype(np.float32) for name, array in old.items()}, "other arrays"),
    ],
    ids=["version", "format", "fewer arrays", "more arrays", "shapes", "dtypes"],
)
def test_a_file_that_another_version_wrote_is_a_sentence(header, arrays, sentence, file):
    solve(SOLVERS["SDD"], max_passes=2.0, checkpoint=file)
    write_again(file, header, arrays)
    with pytest.raises(ValueError, match=sentence):
        solve(SOLVERS["SDD"], checkpoint=file)


def test_two_writers_of_one_file_never_damage_it(tmp_path):
    path, stop, errors = tmp_path / "model", threading.Event(), []

    def write_often(value):
        try:
            while not stop.is_set():
                write(path, {"value": value}, {"array": np.full(20_000, value)})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write_often, args=(value,)) for value in (1.0, 2.0)]
    write(path, {"value": 0.0}, {"array": np.zeros(20_000)})
    for thread in threads:
        thread.start()
    seen = set()
    try:
        for _ in range(200):
            header, arrays = read(path)
            assert (arrays["array"] == header["value"]).all()
            seen.add(header["value"])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors and {1.0, 2.0} <= seen
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_file_that_could_not_be_written_leaves_nothing_behind_and_the_old_one_as_it_was(tmp_path):
    path = tmp_path / "model"
    write(path, {"value": 1}, {})
    with pytest.raises(ValueError, match="allow_pickle"):
        write(path, {"value": 2}, {"array": np.array([object()])})
    assert read(path)[0] == {"value": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    (tmp_path / "ordinary").touch()
    assert path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
