"""What all benchmarks share: medians of several runs, and results as JSON lines with version, commit and cores."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import dualgp

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from datasets import Dataset, docking_f2_counts, load_large, load_uci, prior_draw, published_model  # noqa: F401
from datasets.large import LOADERS  # noqa: F401

RESULTS = Path(__file__).parent / "results"


def medians(functions: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each, in turns so that a noisy moment does not fall on one of them alone; compiled before.

    A turn is a run that does not count, because of what the one before left in the caches, and one that does.
    """
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            jax.block_until_ready(function())
            began = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def load(name: str) -> list[dict]:
    """The lines of results/name.jsonl, none if there is no such file."""
    file = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def save(name: str, line: dict) -> None:
    """Print a line and append it, with the version, the commit and the cores it was measured on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    line = {**line, "version": dualgp.__version__, "commit": commit, "cores": len(os.sched_getaffinity(0))}
    print(json.dumps(line), flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def command_line(
    doc: str | None,
    keys: tuple[str, ...],
    measure: Callable[..., dict],
    *,
    limit: float,
    show: dict[str, Callable[[], Any]] | None = None,
    **defaults: Any,
) -> argparse.Namespace:
    """The options of a script that measures cells: `defaults` by name, those that are False as flags.

    `--one` measures a cell here, prints it and ends; so do flags that `show` what has been measured, such as `--table`.
    """
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if default is False:
            arguments.add_argument(f"--{name}", action="store_true")
        else:
            arguments.add_argument(f"--{name}", default=default, help=f"default: {default}")
    arguments.add_argument("--limit", type=float, default=limit, help=f"seconds for a cell, default: {limit:.0f}")
    metavar = tuple(key.upper() for key in keys)
    arguments.add_argument("--one", nargs=len(keys), metavar=metavar, help="one cell, in this process")
    for name in show or {}:
        arguments.add_argument(f"--{name}", action="store_true", help="of what has been measured")
    options = arguments.parse_args()
    for name, action in (show or {}).items():
        if getattr(options, name):
            action()
            sys.exit()
    if options.one:
        print(json.dumps(measure(*options.one)))
        sys.exit()
    return options


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
    """The command line of a benchmark whose cells are (data set, method)."""
    keys = ("set", "method")
    options = command_line(doc, keys, measure, limit=limit, sets=sets, methods=";".join(methods))
    cells = [(s, method) for s in options.sets.split(",") for method in options.methods.split(";")]
    in_processes(name, script, [cell for cell in cells if cell not in left_out], keys, options.limit)


def _may_succeed(line: dict, limit: float) -> bool:
    """Whether a cell that ran out of time has more of it now."""
    return float(line.get("limit", math.inf)) < limit


def in_processes(name: str, script: str, cells: list[tuple[str, ...]], keys: tuple[str, ...], limit: float) -> None:
    """Run `script --one *cell` for every cell without a result yet, each in a process of its own, and save its line."""
    done = {tuple(str(line[key]) for key in keys) for line in load(name) if not _may_succeed(line, limit)}
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
            line = {"failed": f"not within {limit:.0f} s", "limit": limit}
        save(name, {**dict(zip(keys, cell, strict=True)), **line})
