"""Two hosts, as network namespaces with a cable between them: one vanishes without closing its connections."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dualgp as dg
from cases import data, points
from dualgp import distributed

WORKER = Path(__file__).parent / "distributed_worker.py"
ADDRESSES = {"a": "10.213.7.1", "b": "10.213.7.2"}
CASE = {"solver": "BlockDescent", "settings": {"block_size": 100, "tol": 1e-3}, "dtype": "float64", "mesh": "all"}
LIMIT = 240
pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts():
    """The names of two namespaces, each with one end of a cable, called eth0."""
    names = {host: f"dualgp-{os.getpid()}-{host}" for host in ADDRESSES}
    ends = {host: f"dg{os.getpid()}{host}" for host in ADDRESSES}
    try:
        try:
            ip("link", "add", ends["a"], "type", "veth", "peer", "name", ends["b"])
            for host, name in names.items():
                ip("netns", "add", name)
                ip("link", "set", ends[host], "netns", name, "name", "eth0")
                ip("-n", name, "address", "add", f"{ADDRESSES[host]}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces can be made here ({error.stderr.strip()})")
        yield names
    finally:
        subprocess.run(["ip", "link", "delete", ends["a"]], capture_output=True)  # if it was not moved
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def start(folder, hosts):
    """The same command on both hosts, each of which knows its own address by its name."""
    processes = []
    for rank, (host, name) in enumerate(hosts.items()):
        known = folder / f"hosts-{host}"
        known.write_text(f"127.0.0.1 localhost\n{ADDRESSES[host]} {os.uname().nodename}\n")
        work = [sys.executable, str(WORKER), str(folder), str(rank), "2", "29413", ADDRESSES["a"]]
        command = ["ip", "netns", "exec", name, "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(known)]
        environment = {**os.environ, "PYTHONPATH": str(Path(dg.__file__).parents[1])}
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
        processes.append(subprocess.Popen([*command, *work], env=environment, **pipes))
    return processes


def ends(processes, seconds=LIMIT):
    try:
        return [(process.communicate(timeout=seconds)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()


def results(folder):
    with np.load(folder / "results-job.npz") as file:
        return dict(file)


def test_when_a_host_vanishes_both_say_so_and_the_same_command_goes_on(hosts, tmp_path):
    x, y = data(601, dtype=np.float64)
    for name, array in (("x", x), ("y", y), ("x_new", points(20, seed=5))):
        np.save(tmp_path / f"{name}.npy", array)
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"name": "job", "cases": {"case": CASE}}))
    undisturbed = ends(start(tmp_path, hosts))
    assert [code for _, code in undisturbed] == [0, 0], undisturbed
    expected = results(tmp_path)

    job.write_text(json.dumps({"name": "job", "cases": {"case": {**CASE, "checkpoint": "state"}}}))
    processes, deadline = start(tmp_path, hosts), time.monotonic() + LIMIT
    while not (tmp_path / "state").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    ip("-n", hosts["b"], "link", "set", "eth0", "down")  # as if its cable was pulled: no process ends, nothing is said
    began = time.monotonic()
    for errors, code in ends(processes):
        assert code == distributed.PEER_LOST and "is gone" in errors and "Start them all again" in errors, errors
        assert "Traceback" not in errors
    assert time.monotonic() - began < 90 and (tmp_path / "state").exists()

    ip("-n", hosts["b"], "link", "set", "eth0", "up")
    again = ends(start(tmp_path, hosts))
    assert [code for _, code in again] == [0, 0], again
    for name, array in results(tmp_path).items():
        np.testing.assert_array_equal(array, expected[name])
    assert not (tmp_path / "state").exists()
