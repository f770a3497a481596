"""Steps of the default solver on 1, 2 and 4 devices: seconds, bytes on the network, and what the cost model says.

    python benchmarks/devices.py [--n 50000] [--columns 65] [--rounds 3] [--steps 0]

Ways, each a set of processes that wait for their turn: plain (one process, one core), sharded (the same through the
sharded operator), 2 (two processes with a core each) and 4 (four processes on two cores: they show the bytes, and
what a core shared by two costs). `--steps 0` is a whole pass. Bytes: the collectives in the compiled program, and
what the loopback interface counted. Processor time is that of one process: on a busy machine the figure to look at.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DIMENSIONS = 9
WAYS = {"plain": 1, "sharded": 1, "2": 2, "4": 4}
COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|collective-permute)(?:-start)?\(")


def worker(way: str, rank: int, port: int, n: int, columns: int, steps: int) -> None:
    """Wait for a line, take the steps, say how long they took."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    size = WAYS[way]
    if size > 1:
        from dualgp import distributed

        distributed.initialize(f"127.0.0.1:{port}", rank, size)
    import jax
    import jax.numpy as jnp
    import numpy as np

    import dualgp as dg
    from dualgp._arrays import wide
    from dualgp._threads import one_blas_thread_on_few_cores
    from dualgp.solvers.iterate import _advance, advance

    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, DIMENSIONS)).astype(np.float32)
    b = rng.normal(size=(n, columns)).astype(np.float32)
    key, kernel = jax.random.key(0), dg.Matern32(1.5)
    with wide(), one_blas_thread_on_few_cores():
        operator = dg.KernelOperator(kernel, x, 0.1, mesh=None if way == "plain" else "all", memory=0)
        b = operator.layout.place(b, np.float32)
        solver, _ = dg.BlockDescent().prepare(operator, b, key)
        steps = steps or round(1.0 / solver.passes_per_step(n))
        state = solver.init(operator, b, jnp.zeros_like(b))
        arguments = (solver, operator, b, state, key)
        text = _advance.lower(*arguments, jnp.int32(0), jnp.int32(1)).compile().compiled.as_text()

        def take(num: int) -> None:
            jax.block_until_ready(advance(*arguments, 0, num))

        take(1)
        facts = {"block": solver.block_size, "steps": steps, "collectives": collectives(text)}
        facts["factor"] = factor_seconds(operator, solver.block_size, columns)
        print(json.dumps(facts), flush=True)
        for line in sys.stdin:
            before, began, cpu = loopback(), time.perf_counter(), time.process_time()
            take(int(line) or steps)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            print(json.dumps({"seconds": seconds, "cpu": cpu, "loopback": loopback() - before}), flush=True)


def factor_seconds(operator: Any, block: int, columns: int) -> float:
    """Processor time of a block's solution, which every device finds for itself: the least of three."""
    import equinox as eqx
    import jax
    import numpy as np

    from dualgp.solvers.block_descent import BlockDescent, _solve_block

    dtype = BlockDescent(block_size=block).prepare(operator, None, None)[0].settings.block_dtype
    solve = eqx.filter_jit(_solve_block)
    index, residual = np.arange(block, dtype=np.int32), np.ones((block, columns), np.float32)
    jax.block_until_ready(solve(operator, index, residual, dtype))
    seconds = []
    for _ in range(3):
        began = time.process_time()
        jax.block_until_ready(solve(operator, index, residual, dtype))
        seconds.append(time.process_time() - began)
    return min(seconds)


def collectives(text: str) -> dict[str, int]:
    """Bytes of the results of each kind of collective in a compiled program: those of a step, and of an epoch's cut."""
    total: dict[str, int] = {}
    for line in text.splitlines():
        if found := COLLECTIVE.search(line):
            total[found[2]] = total.get(found[2], 0) + sum(
                map(array_bytes, re.findall(r"[a-z0-9]+\[[0-9,]*\]", found[1]))
            )
    return total


def array_bytes(shape: str) -> int:
    kind, sizes = shape.rstrip("]").split("[")
    count = 1
    for size in sizes.split(",") if sizes else []:
        count *= int(size)
    return count * int(re.sub(r"\D", "", kind) or 8) // 8


def loopback() -> int:
    """Bytes that the loopback interface has carried."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


class Way:
    """The processes of one way."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        numbers = [str(v) for v in (port, options.n, options.columns, options.steps)]
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", name, str(rank), *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(WAYS[name])
        ]
        self.facts = self.answers()[0]

    def answers(self) -> list[dict]:
        """The next line of JSON from every process (JAX's transport prints lines of its own)."""
        found = []
        for process in self.processes:
            while not (line := process.stdout.readline()).startswith("{"):
                if not line:
                    raise RuntimeError("A process ended before its time; see above.")
            found.append(json.loads(line))
        return found

    def take(self, steps: int) -> dict:
        """One turn: the slowest process counts."""
        for process in self.processes:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        found = self.answers()
        return {name: max(one[name] for one in found) for name in ("seconds", "cpu", "loopback")}

    def end(self) -> None:
        for process in self.processes:
            process.kill()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--n", type=int, default=50_000)
    arguments.add_argument("--columns", type=int, default=65, help="right-hand sides: 1 + samples")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=0, help="of a turn; 0 is a pass")
    arguments.add_argument("--ways", default=",".join(WAYS))
    arguments.add_argument("--worker", nargs=6, default=None)
    options = arguments.parse_args()
    if options.worker:
        return worker(options.worker[0], *map(int, options.worker[1:]))
    measure(options)


def measure(options: argparse.Namespace) -> None:
    from record import save

    ways = {name: Way(name, options) for name in options.ways.split(",")}
    try:
        turns: dict[str, list[dict]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                turns[name].append(way.take(options.steps))
        for name, way in ways.items():
            median = {key: statistics.median(turn[key] for turn in turns[name]) for key in turns[name][0]}
            steps, block = way.facts["steps"], way.facts["block"]
            line = {
                "n": options.n,
                "columns": options.columns,
                "way": name,
                "block": block,
                "steps": steps,
                "ms a step": round(1e3 * median["seconds"] / steps, 1),
                "cpu ms a step": round(1e3 * median["cpu"] / steps, 1),
                "cpu ms of a factor": round(1e3 * way.facts["factor"], 1),
                "bytes of collectives": way.facts["collectives"],
                "B m 4": 4 * block * options.columns,
                "B d 4": 4 * block * DIMENSIONS,
                "loopback bytes a step": round(median["loopback"] / steps),
            }
            save("devices", line)
    finally:
        for way in ways.values():
            way.end()


if __name__ == "__main__":
    main()
