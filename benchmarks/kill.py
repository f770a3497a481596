"""Two processes solve together; one of them is killed at a random moment; the same command ends as if nothing had been.

    python benchmarks/kill.py [--n 8000] [--kills 10]

Every kill: a random process, SIGKILL, at a random moment between the first step and the last. What is checked: the
other one stops with code 4 and a sentence, and two processes (every third time: one, or three) that are started with
the same command reach the residual and the predictions of a run that nobody disturbed.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from record import save

LIMIT = 300  # seconds for a run


def worker(folder: Path, rank: int, size: int, port: int) -> None:
    """One process of a run: the mean and 8 samples, a checkpoint after every chunk of steps."""
    from dualgp import distributed

    distributed.initialize(f"127.0.0.1:{port}", rank, size)
    import jax

    import dualgp as dg
    from dualgp.solvers import iterate

    iterate.CHECKPOINT_SECONDS = iterate.CHUNK_ENTRIES = 0.0  # every step may be the last
    with distributed.together():
        x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
        model = dg.GaussianProcess(dg.Matern32(1.0), noise=0.05)
        (folder / f"started{rank}").touch()
        posterior = model.condition(
            x,
            y,
            mesh="all",
            num_samples=8,
            key=jax.random.key(0),
            memory=0,
            solver=dg.BlockDescent(tol=1e-3),
            checkpoint=folder / "checkpoint",
        )
        mean, std = posterior.predict(np.asarray(x[:100]))
        if rank == 0:
            solution = posterior.solution
            np.savez(folder / "result.npz", mean=mean, std=std, residual=solution.residual, steps=solution.steps)
        distributed.finish()


def start(folder: Path, size: int) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    command = [sys.executable, __file__, "--worker", str(folder)]
    return [
        subprocess.Popen(
            [*command, str(rank), str(size), str(port)], stderr=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(size)
    ]


def finished(folder: Path, size: int) -> dict:
    for process in start(folder, size):
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, errors
    with np.load(folder / "result.npz") as result:
        return dict(result)


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def killed(folder: Path, after: float, victim: int) -> dict:
    """Start two, kill one, and see how the other ends."""
    processes = start(folder, 2)
    wait_for(folder / f"started{victim}")
    time.sleep(after)
    processes[victim].send_signal(signal.SIGKILL)
    began = time.perf_counter()
    _, errors = processes[1 - victim].communicate(timeout=LIMIT)
    processes[victim].communicate()
    return {
        "code": processes[1 - victim].returncode,
        "seconds to stop": round(time.perf_counter() - began, 2),
        "sentence": errors.strip().splitlines()[-1] if errors.strip() else "",
        "checkpoint": (folder / "checkpoint").exists(),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--n", type=int, default=8000)
    arguments.add_argument("--kills", type=int, default=10)
    arguments.add_argument("--worker", nargs=4, default=None, metavar=("FOLDER", "RANK", "SIZE", "PORT"))
    options = arguments.parse_args()
    if options.worker:
        return worker(Path(options.worker[0]), *map(int, options.worker[1:]))
    rng, chance = np.random.default_rng(0), random.Random(0)
    x = rng.normal(size=(options.n, 3)).astype(np.float32)
    y = np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=options.n)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        folder.mkdir()
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        finished(folder, 2)  # compiles
        began = time.perf_counter()
        truth = finished(folder, 2)
        seconds = time.perf_counter() - began
        for i in range(options.kills):
            for file in folder.glob("started*"):
                file.unlink()
            line = killed(folder, chance.uniform(0.0, 0.7 * seconds), chance.randrange(2))
            size = (2, 2, 1, 2, 2, 3)[i % 6]
            result = finished(folder, size)
            save("kill", {**line, "processes then": size, **differences(truth, result), "n": options.n})


def differences(truth: dict, result: dict) -> dict:
    """Largest differences, relative to the largest value."""
    return {
        name: float(f"{np.max(np.abs(truth[name] - result[name])) / np.max(np.abs(truth[name])):.2g}")
        for name in ("residual", "mean", "std", "steps")
    }


if __name__ == "__main__":
    main()
