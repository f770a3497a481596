"""Many devices in one process, and many processes on the loopback interface, against one device."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dualgp as dg
from cases import data, points
from dualgp import distributed

LIMIT = 240
WORKER = Path(__file__).parent / "distributed_worker.py"
N = 601  # not divisible by 2 or 4
BLOCKS = {"solver": "BlockDescent", "settings": {"block_size": 100, "tol": 1e-3}}
CASES = {
    "blocks": {**BLOCKS, "dtype": "float32"},
    "double": {**BLOCKS, "dtype": "float64"},
    "spread": {**BLOCKS, "dtype": "float64", "replicated_bytes": 0},
    "part": {**BLOCKS, "dtype": "float64", "max_passes": 0.5, "subset_from": N - 1},
    "stopped": {**BLOCKS, "dtype": "float64", "max_passes": 2.5, "max_seconds": 600},
    "kept": {
        "solver": "SDD",
        "settings": {"num_steps": 200, "batch_size": 64, "step_size": 5.0},
        "dtype": "float64",
        "memory": 1 << 30,
    },
    "cg": {"solver": "CG", "settings": {"max_iterations": 5}, "dtype": "float64"},
    "cholesky": {"solver": "Cholesky", "dtype": "float64"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("distributed")
    x, y = data(N, dtype=np.float64)
    for name, array in (("x", x), ("y", y), ("x_new", points(20, seed=5))):
        np.save(folder / f"{name}.npy", array)
    return folder


def start(folder: Path, job: str, cases: dict, size: int, devices: int = 1) -> list[subprocess.Popen]:
    """Processes that work on the cases; size 0 is one process without the others' machinery."""
    (folder / "job.json").write_text(json.dumps({"name": job, "cases": cases}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = str(Path(dg.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    return [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), str(rank), str(size), str(port)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for rank in range(max(size, 1))
    ]


def results(folder: Path, job: str, cases: dict, size: int, devices: int = 1) -> dict:
    processes = start(folder, job, cases, size, devices)
    try:
        ends = [(process.communicate(timeout=LIMIT)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(code == 0 for _, code in ends), ends
    with np.load(folder / f"results-{job}.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def alone(folder) -> dict:
    return results(folder, "alone", {name: {**case, "mesh": None} for name, case in CASES.items()}, 0)


@pytest.fixture(scope="module")
def on_four(folder) -> dict:
    return results(folder, "four", {name: {**case, "mesh": "all"} for name, case in CASES.items()}, 0, devices=4)


@pytest.fixture(scope="module")
def by_two(folder) -> dict:
    cases = {name: {**CASES[name], "mesh": "all"} for name in ("blocks", "double", "stopped", "cg")}
    return results(folder, "two", cases, 2)


# float32; conjugate gradients, which blow up a change in the last bit, by 1e3 in 10 iterations; and float64.
LIMITS = {"blocks": 1e-3, "cg": 1e-8}


def assert_same(first: dict, second: dict, case: str, what: str) -> None:
    name, limit = f"{case}.{what}", LIMITS.get(case, 1e-10)
    # residuals are relative already
    size = 1.0 if what == "residual" else np.max(np.abs(first[name]))
    assert np.max(np.abs(first[name] - second[name])) < limit * size
    assert first[f"{case}.steps"] == second[f"{case}.steps"]


@pytest.mark.parametrize("what", ["mean", "std", "samples", "weights", "residual"])
@pytest.mark.parametrize("case", CASES)
def test_four_devices_give_the_answer_of_one(alone, on_four, case, what):
    assert_same(alone, on_four, case, what)


@pytest.mark.parametrize("what", ["mean", "std", "samples", "weights", "residual"])
@pytest.mark.parametrize("case", ["blocks", "double", "stopped", "cg"])
def test_two_processes_give_the_answer_of_one(alone, by_two, case, what):
    assert_same(alone, by_two, case, what)


def test_two_devices_give_the_answer_of_one_on_counts(folder):
    # As many steps for both: the moment of convergence depends on rounding, and sums are in another order.
    settings = {"block_size": 100, "tol": 0.0, "max_passes": 4.0}
    case = {"solver": "BlockDescent", "settings": settings, "dtype": "float32", "counts": True}
    one = results(folder, "one", {"blocks": {**case, "mesh": None}}, 0)
    two = results(folder, "counts", {"blocks": {**case, "mesh": "all"}}, 0, devices=2)
    for what in ("mean", "std", "samples"):
        assert_same(one, two, "blocks", what)


def test_a_step_sends_the_sums_of_its_rows_and_nothing_else():
    code = """
import re, equinox as eqx, jax, numpy as np, dualgp as dg
from dualgp._arrays import wide
from dualgp.solvers.iterate import _advance
with wide():
    operator = dg.KernelOperator(dg.RBF(), np.random.rand(301, 2).astype(np.float32), 0.1, mesh="all", memory=0)
    b = operator.layout.place(np.ones((301, 5)), np.float32)
    solver = dg.BlockDescent(block_size=30).prepare(operator, b, None)[0]
    arguments = solver, operator, b, solver.init(operator, b, b), jax.random.key(0), np.int32(0), np.int32(1)
    text = eqx.filter_jit(_advance.__wrapped__).lower(*arguments).compile().compiled.as_text()
print(re.findall(r"= (\\S+?)\\{\\S* (?:all-|collective-|reduce-scatter)", text))
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert output.stdout.strip() == "['f32[30,5]']", output


def test_what_two_processes_save_is_one_file_for_anyone(by_two, folder):
    posterior = dg.load(folder / "double.dgp")
    assert posterior.n == N and posterior.layout.mesh is None
    np.testing.assert_allclose(posterior.mean(np.load(folder / "x_new.npy")), by_two["double.mean"], rtol=1e-10)


@pytest.mark.parametrize("then", [2, 1])
def test_when_a_process_is_killed_the_other_says_so_and_as_many_or_fewer_go_on(by_two, folder, then):
    case = {**CASES["double"], "mesh": "all", "checkpoint": f"checkpoint-{then}"}
    victim = then % 2
    processes = start(folder, "killed", {"killed": case}, 2)
    try:
        deadline = time.monotonic() + LIMIT
        while not (folder / f"checkpoint-{then}").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        processes[victim].send_signal(signal.SIGKILL)
        _, errors = processes[1 - victim].communicate(timeout=60)
    finally:
        for process in processes:
            process.kill()
    assert processes[1 - victim].returncode == distributed.PEER_LOST
    assert "Start them all again" in errors and "Traceback" not in errors
    assert (folder / f"checkpoint-{then}").exists()
    after = results(folder, "after", {"killed": case}, then)
    for what in ("mean", "std", "samples", "residual"):
        assert np.max(np.abs(after[f"killed.{what}"] - by_two[f"double.{what}"])) < 1e-8
    assert after["killed.steps"] == by_two["double.steps"]
    assert not (folder / f"checkpoint-{then}").exists()


def test_the_command_line_fits_with_two_processes_that_read_their_own_rows(tmp_path):
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    x, y = data(201, dtype=np.float32)
    np.save(tmp_path / "data.npy", np.column_stack([x, 100.0 + 50.0 * y]).astype(np.float32))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "dualgp.table.cli",
        "fit",
        "data.npy",
        "--target",
        "3",
        "-o",
        "model.dgp",
        "--quiet",
    ]
    command += ["--samples", "4", "--distributed", "--coordinator", f"127.0.0.1:{port}", "--size", "2", "--rank"]
    environment = {**os.environ, "PYTHONPATH": str(Path(dg.__file__).parents[1])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": environment}
    processes = [subprocess.Popen([*command, str(rank)], **pipes) for rank in (0, 1)]
    try:
        ends = [(*process.communicate(timeout=LIMIT), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [code for *_, code in ends] == [0, 0], ends
    assert "201 points" in ends[0][0] and "Wrote model.dgp" in ends[0][0] and "Wrote" not in ends[1][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npy", "model.dgp"]
    predicted = dg.load(tmp_path / "model.dgp").predict(tmp_path / "data.npy")["mean"]
    assert np.std(predicted - (100.0 + 50.0 * y)) < 0.4 * 50.0  # the noise has 0.3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("127.0.0.1:1", 0, None), "go together"),
        (("127.0.0.1", 0, 2), "host:port"),
        (("127.0.0.1:1", 2, 2), "rank must be"),
    ],
)
def test_a_place_among_many_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        distributed.initialize(*arguments)


def say(port, words=b"", hold=0.0):
    """A connection that says something, waits, and closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        if words:
            connection.sendall(words)
        time.sleep(hold)


def test_strangers_are_dropped_with_a_line_and_hold_nobody_up(capsys, monkeypatch):
    token, listener = bytes(range(32)), distributed._listen("127.0.0.1")
    port = listener.getsockname()[1]
    assert listener.getsockname()[0] == "127.0.0.1"
    found = {}
    waiting = threading.Thread(target=lambda: found.update(distributed.accept(listener, 3, token, 30.0)))
    waiting.start()
    monkeypatch.setenv(distributed.SECRET, "other")
    impostor = distributed.greeting(token, 1)
    monkeypatch.delenv(distributed.SECRET)
    good = [distributed.greeting(token, rank) for rank in (1, 2)]
    began = time.monotonic()
    threading.Thread(target=say, args=(port, b"", 8.0), daemon=True).start()  # connects and says nothing
    for words in (b"", b"GET / HTTP/1.1\r\n" * 9, bytes(36), impostor, distributed.greeting(bytes(32), 1)):
        say(port, words)
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in good]
    for peer, words in zip(peers, good, strict=True):
        peer.sendall(words[:10])
        time.sleep(0.1)
        peer.sendall(words[10:])
    waiting.join(timeout=20)
    assert sorted(found) == [1, 2] and time.monotonic() - began < 6.0
    assert [found[rank].getpeername()[1] for rank in (1, 2)] == [peer.getsockname()[1] for peer in peers]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and all(
        "dropped a connection that came from 127.0.0.1 and did not know the secret" in x for x in lines
    )


def test_a_process_that_does_not_come_is_a_sentence_and_no_hang():
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"Process\(es\) \[1, 2\] did not connect .* within 1 s"):
        distributed.accept(distributed._listen("127.0.0.1"), 3, bytes(32), 1.0)
    assert time.monotonic() - began < 5.0
