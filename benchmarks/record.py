"""What all benchmarks share: medians of several runs, and results as JSON lines with commit and cores."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


def medians(functions: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each, in turns so that a noisy moment does not fall on one of them alone; compiled before."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def load(name: str) -> list[dict]:
    """The lines of results/name.jsonl, none if there is no such file."""
    file = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def save(name: str, line: dict) -> None:
    """Print a line and append it, with the commit and the cores it was measured on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    line = {**line, "commit": commit, "cores": len(os.sched_getaffinity(0))}
    print(json.dumps(line), flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def run_cells(
    name: str,
    script: str,
    doc: str | None,
    measure: Callable,
    sets: str,
    methods: list[str],
    limit: float,
    left_out: set[tuple[str, str]],
) -> None:
    """The command line of a benchmark whose cells are (data set, method): all of them, or `--one` in this process."""
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default=sets)
    arguments.add_argument("--methods", default=";".join(methods))
    arguments.add_argument("--limit", type=float, default=limit, help="seconds for a cell")
    arguments.add_argument("--one", nargs=2, default=None, metavar=("SET", "METHOD"), help="one cell, in this process")
    options = arguments.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    cells = [(s, method) for s in options.sets.split(",") for method in options.methods.split(";")]
    in_processes(name, script, [cell for cell in cells if cell not in left_out], ("set", "method"), options.limit)


def in_processes(name: str, script: str, cells: list[tuple[str, ...]], keys: tuple[str, ...], limit: float) -> None:
    """Run `script --one *cell` for every cell without a result yet, each in a process of its own, and save its line."""
    done = {tuple(str(line[key]) for key in keys) for line in load(name)}
    for cell in cells:
        if cell in done:
            continue
        try:
            command = [sys.executable, script, "--one", *cell]
            output = subprocess.run(command, capture_output=True, text=True, timeout=limit)
            if output.returncode > 0:  # a mistake of ours, or data that are missing: not a result
                print(*cell, output.stderr, sep="\n", file=sys.stderr)
                continue
            line = json.loads(output.stdout.splitlines()[-1]) if output.returncode == 0 else {"failed": "killed"}
        except subprocess.TimeoutExpired:
            line = {"failed": f"not within {limit:.0f} s"}
        save(name, {**dict(zip(keys, cell, strict=True)), **line})
