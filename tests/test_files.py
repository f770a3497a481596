"""Files under attack: flipped bits, bombs, edits, full disks, device nodes, and several processes at one path."""

import os
import resource
import subprocess
import sys
import warnings
import zipfile
from collections import Counter

import jax
import numpy as np
import pytest

import dualgp as dg
from attack import flips
from cases import data
from dualgp._npz import NotReadable, read, write
from dualgp.checkpoints import Checkpoint
from dualgp.decisions.thompson import ThompsonState

ALLOWED = {"sentence", "harmless"}
X_NEW = np.random.default_rng(1).uniform(-2, 2, (7, 3))


def exact():
    x, y = data(40)
    return dg.GPRegressor(n_samples=2, learn=False, random_state=0).fit(x, 50.0 + 3.0 * y)


def sampled():
    x, y = data(600)
    model = dg.GaussianProcess(dg.Matern32(0.8) + dg.RBF(2.0), 0.1)
    key = jax.random.key(0)
    return model.condition(x, y, solver=dg.BlockDescent(block_size=100), num_samples=2, num_features=64, key=key)


def table():
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    from dualgp.table.model import fit_table

    x, y = data(60)
    columns = {"a": x[:, 0], "b": x[:, 1], "c": np.where(x[:, 2] > 0, "up", "down"), "y": y}
    return fit_table(columns, "y", n_samples=2, learn=False, random_state=0)


def campaign():
    sampler = dg.ThompsonSampler([(-2, 2)] * 3, key=jax.random.key(0), model=dg.GaussianProcess(dg.RBF(0.9), 0.1))
    x, y = data(30)
    sampler.tell(x, y)
    return sampler.state


def predict(model):
    if isinstance(model, ThompsonState):
        return np.concatenate([model.x.ravel(), model.y, np.ravel(model.bounds), [float(model.model.noise)]])
    if hasattr(model, "encoding"):
        return np.stack(list(model.predict({"a": X_NEW[:, 0], "b": X_NEW[:, 1], "c": ["up"] * 7}).values()))
    if isinstance(model, dg.GPRegressor):
        return np.stack(model.predict(X_NEW, return_std=True))
    return np.stack(model.predict(X_NEW))


@pytest.fixture(scope="module", params=[exact, sampled, table, campaign], ids=lambda make: make.__name__)
def saved(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.dgp"
    dg.save(request.param(), path)
    return path, predict(dg.load(path))


def test_no_flipped_bit_of_any_header_loads_another_model(saved, tmp_path):
    path, good = saved
    found = flips.outcomes(flips.flips(path, 150, 0), tmp_path / "m", predict, good, may_differ=False)
    assert set(found) <= ALLOWED and found["sentence"] > 70, found


def test_no_cut_or_overwritten_file_loads_another_model(saved, tmp_path):
    path, good = saved
    found = flips.outcomes(flips.mutations(path, 40, 0), tmp_path / "m", predict, good, may_differ=False)
    assert set(found) <= ALLOWED and found["sentence"] > 25, found


def test_an_edit_with_valid_checksums_is_a_sentence_or_a_model_that_predicts(saved, tmp_path):
    path, good = saved
    found = flips.outcomes(flips.edits(path, 40, 0), tmp_path / "m", predict, good, may_differ=True)
    assert set(found) <= ALLOWED | {"changed"} and found["sentence"] > 12, found


def test_a_shape_in_a_header_that_leaves_bytes_over_is_found(saved, tmp_path):
    # zipfile compares a checksum only when a member is read to its end: the weights were a column of themselves.
    path, _ = saved
    _, arrays = read(path)
    wide = [a for a in arrays.values() if a.ndim == 2 and a.shape[1] > 1 and a.nbytes > 4096]
    text = path.read_bytes()
    if not wide:
        pytest.skip("no array with several columns is large enough")
    for rows, columns in {array.shape for array in wide}:
        old, new = f"'shape': ({rows}, {columns})".encode(), f"'shape': ({rows}, 1)".encode()
        assert old in text
        (tmp_path / "m").write_bytes(text.replace(old, new.ljust(len(old)), 1))
        with pytest.raises(NotReadable, match="damaged"):
            dg.load(tmp_path / "m")


def rewritten(path, target, change):
    """The archive with its members' bytes changed, and valid checksums of zip's."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            for name, content, how in change(info.filename, old.read(info)):
                new.writestr(zipfile.ZipInfo(name), content, compress_type=how)


@pytest.mark.parametrize("kind", ["unused", "doubled", "exchanged", "huge shape"])
def test_members_that_do_not_belong_are_refused_before_anything_is_allocated(kind, saved, tmp_path):
    path, _ = saved
    stored, deflated = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED

    def change(name, content):
        if name != "a1.npy":
            return [(name, content, stored)]
        zeros = content[:128] + bytes(200_000_000)
        odd = {"unused": ("a999.npy", zeros, deflated), "doubled": (name, content, stored)}
        if kind in odd:
            return [(name, content, stored), odd[kind]]
        if kind == "huge shape":
            start = content.index(b"(", 60)
            content = content[:start] + b"(9999999999,), }".ljust(127 - start) + b"\n" + content[128:]
        return [("a0.npy" if kind == "exchanged" else name, content, stored)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's, of names that are there twice
        rewritten(path, tmp_path / "m", change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NotReadable, match="damaged"):
        dg.load(tmp_path / "m")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_members_may_be_compressed_or_not(saved, tmp_path):
    path, good = saved
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        rewritten(path, tmp_path / "m", lambda name, content, how=how: [(name, content, how)])
        np.testing.assert_array_equal(predict(dg.load(tmp_path / "m")), good)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("units_.y_scale", -5.0), ("units_.y_scale", float("nan")), ("units_.warp", None), ("units_.slopes", [1.0])],
        *[("units_.warp.kind", "cosine"), ("units_.warp.scale", 0.0), ("encoding_", 1.0), ("decisions_", 3)],
        *[("predict", 1.0), ("noise_", -1.0), ("n_features_in_", 2)],
    ],
)
def test_attributes_that_make_no_sense_are_refused(field, value, tmp_path):
    dg.save(exact(), tmp_path / "m")
    header, arrays = read(tmp_path / "m")
    content, (*outer, last) = header["content"], field.split(".")
    for name in outer:
        content = content["fields"][name]
    content["fields"][last] = value
    write(tmp_path / "m", header, arrays)
    with pytest.raises(NotReadable, match="does not hold together"):
        dg.load(tmp_path / "m")


@pytest.mark.parametrize("content", [3, [1], "x", {"class": "Result", "value": "converged"}, {"dict": {"a": 1}}])
def test_what_is_not_a_model_is_not_loaded(content, tmp_path):
    write(tmp_path / "m", {"format": "dualgp", "version": 2, "content": content}, {})
    with pytest.raises(NotReadable, match="holds"):
        dg.load(tmp_path / "m")


@pytest.mark.parametrize("place", ["pipe", "folder", ""])
def test_only_regular_files_are_written_and_read(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # like /dev/full, which a user with all rights would lose
    before = os.stat(place or ".").st_mode
    for call in (lambda: dg.save(dg.RBF(), place), lambda: dg.load(place)):
        with pytest.raises(ValueError, match=r"is not a file's name|is not an ordinary file|is a folder"):
            call()
    assert os.stat(place or ".").st_mode == before and set(os.listdir(tmp_path)) == {"folder", "pipe"}


FULL = """
import resource, signal, sys, numpy as np
from dualgp._npz import write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write(sys.argv[1], {"value": 2}, {"array": np.zeros(100_000)})
except OSError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_file_and_a_sentence(tmp_path):
    write(tmp_path / "model", {"value": 1}, {})
    said = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "model")], capture_output=True, text=True)
    assert "could not be written" in said.stdout and "as it was" in said.stdout, said
    assert read(tmp_path / "model")[0]["value"] == 1 and os.listdir(tmp_path) == ["model"]


KILLED = """
import os, signal, sys, numpy as np
from dualgp import _npz
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
_npz.write(sys.argv[1], {"value": 2}, {"array": np.zeros(1000)})
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_nothing_else(tmp_path):
    path = tmp_path / "model"
    write(path, {"value": 1}, {})
    subprocess.run([sys.executable, "-c", KILLED, str(path)])
    (tmp_path / "model.csv").touch()
    (tmp_path / "other.0.writing").touch()
    assert len(os.listdir(tmp_path)) == 4 and read(path)[0]["value"] == 1
    write(path, {"value": 3}, {})
    assert sorted(os.listdir(tmp_path)) == ["model", "model.csv", "other.0.writing"]


def test_a_checkpoint_that_is_deleted_takes_along_what_a_killed_process_left(tmp_path):
    # The next run may end without writing: the killed one was at its last step.
    for name in ("state", "other"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)])
    assert len(os.listdir(tmp_path)) == 2
    Checkpoint(tmp_path / "state", 0).delete()
    (left,) = os.listdir(tmp_path)
    assert left.startswith("other.")


WRITER = """
import sys, time, numpy as np
from dualgp._npz import write
end = time.monotonic() + 4
while time.monotonic() < end:
    write(sys.argv[1], {"value": float(sys.argv[2])}, {"array": np.full(20_000, float(sys.argv[2]))})
"""


def test_two_processes_that_write_one_file_never_damage_it(tmp_path):
    path = tmp_path / "model"
    write(path, {"value": 0.0}, {"array": np.zeros(20_000)})
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, value], stderr=subprocess.PIPE) for value in "12"]
    seen = Counter()
    while any(writer.poll() is None for writer in writers):
        header, arrays = read(path)
        assert (arrays["array"] == header["value"]).all()
        seen[header["value"]] += 1
    assert [writer.wait() for writer in writers] == [0, 0] and seen[1.0] and seen[2.0], seen
    assert os.listdir(tmp_path) == ["model"]


HOLDER = """
import sys, jax, dualgp as dg
from dualgp.checkpoints import Checkpoint
from dualgp.decisions.thompson import ThompsonState
if sys.argv[2] == "campaign":
    held = dg.ThompsonSampler([(0, 1)], key=jax.random.key(0), path=sys.argv[1])
else:
    held = Checkpoint(sys.argv[1], 0)
print("ready", flush=True)
sys.stdin.read()
"""


def open_it(kind, path):
    if kind == "campaign":
        return dg.ThompsonSampler([(0, 1)], key=jax.random.key(0), path=path)
    return Checkpoint(path, 0)


@pytest.mark.parametrize("kind", ["campaign", "checkpoint"])
def test_a_second_process_at_one_path_is_told_so_and_a_killed_one_does_not_matter(kind, tmp_path):
    path = tmp_path / "state"
    command = [sys.executable, "-c", HOLDER, str(path), kind]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(ValueError, match=rf"process {holder.pid} .*uses .*state"):
            open_it(kind, path)
        open_it(kind, tmp_path / "another")
    finally:
        holder.kill()
        holder.communicate()
    first = open_it(kind, path)
    second = open_it(kind, path)  # one process may well have both
    assert first is not second
    del first, second
    assert [name for name in os.listdir(tmp_path) if name.startswith("state")] == []


def test_no_flipped_bit_of_a_checkpoint_gives_another_state(tmp_path):
    path, state = tmp_path / "run", (np.arange(3000.0), np.arange(6))
    Checkpoint(path, 0).save(state, {"step": 3})
    like = (np.zeros(0), np.zeros(0, int))
    found, good = Counter(), path.read_bytes()
    for variant in (*flips.flips(path, 200, 0), *flips.mutations(path, 40, 0)):
        path.write_bytes(variant)
        try:
            (first, second), progress = Checkpoint(path, 0).load(like)
        except ValueError as error:
            assert "Delete it to start anew" in str(error) and len(str(error).splitlines()) == 1
            found["sentence"] += 1
        else:
            assert np.array_equal(first, state[0]) and np.array_equal(second, state[1]) and progress == {"step": 3}
            found["harmless"] += 1
    assert found["sentence"] > 150, found
    path.write_bytes(good)
    assert Checkpoint(path, 0).load(like)[1] == {"step": 3}


def test_a_model_solved_in_float32_keeps_nothing_in_float64_that_it_never_uses(tmp_path):
    x, y = data(500)
    model, key = dg.GaussianProcess(dg.Matern32(0.8), 0.1), jax.random.key(0)
    post = model.condition(x.astype(np.float32), y, solver=dg.BlockDescent(), num_samples=8, key=key)
    dg.save(post, tmp_path / "m")
    _, arrays = read(tmp_path / "m")
    assert not [a.shape for a in arrays.values() if a.dtype == np.float64 and a.size > 4096]
    loaded = dg.load(tmp_path / "m")
    for one, other in zip(post.predict(X_NEW), loaded.predict(X_NEW), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(post.samples(X_NEW), loaded.samples(X_NEW))


def test_a_diverged_posterior_is_saved_and_read(tmp_path):
    x, y = data(200)
    model, solver = dg.GaussianProcess(dg.RBF(2.0), 1e-3), dg.SDD(step_size=1e4, num_steps=200, batch_size=50)
    with pytest.warns(dg.solvers.DivergenceWarning):
        post = model.condition(x, y, solver=solver, num_samples=2, num_features=64, key=jax.random.key(0))
    dg.save(post, tmp_path / "m")
    assert np.isfinite(predict(dg.load(tmp_path / "m"))).all()
