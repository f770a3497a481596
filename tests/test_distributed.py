"""Many devices in one process, and many processes on the loopback interface, against one device."""

import json
import os
import signal
import socket
import subprocess
import sys
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
    "blocks": BLOCKS,
    "double": {**BLOCKS, "dtype": "float64"},
    "kept": {**BLOCKS, "dtype": "float64", "memory": 1 << 30},
    "sdd": {"solver": "SDD", "settings": {"num_steps": 200, "batch_size": 64, "step_size": 5.0}, "dtype": "float64"},
    "cg": {"solver": "CG", "settings": {"tol": 1e-6}, "dtype": "float64"},
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
    cases = {name: {**CASES[name], "mesh": "all"} for name in ("blocks", "double", "cg")}
    return results(folder, "two", cases, 2)


def difference(first: dict, second: dict, name: str) -> float:
    return float(np.max(np.abs(first[name] - second[name])) / np.max(np.abs(first[name])))


@pytest.mark.parametrize("what", ["mean", "std", "samples", "weights", "residual"])
@pytest.mark.parametrize("case", CASES)
def test_four_devices_give_the_answer_of_one(alone, on_four, case, what):
    limit = 1e-3 if case == "blocks" else 1e-8  # float32, rounding grows by the condition number; and float64
    assert difference(alone, on_four, f"{case}.{what}") < (limit if what != "residual" else 100 * limit)
    assert alone[f"{case}.steps"] == on_four[f"{case}.steps"]


@pytest.mark.parametrize("what", ["mean", "std", "samples", "weights"])
@pytest.mark.parametrize("case", ["blocks", "double", "cg"])
def test_two_processes_give_the_answer_of_one(alone, by_two, case, what):
    assert difference(alone, by_two, f"{case}.{what}") < (1e-3 if case == "blocks" else 1e-8)


def test_what_two_processes_save_is_one_file_for_anyone(by_two, folder):
    posterior = dg.load(folder / "double.dgp")
    assert posterior.n == N and posterior.layout is None
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
