"""`python tests/attack/soak.py [--seconds 1200]`: a long run in one process. Fails if it grows without end.

Asks, tells, updates, saves and loads with new sizes again and again: every few seconds a line of JSON with resident
memory, open files and memory maps. Growth is judged between the second and the last quarter, because allocators, caches
and the first of every shape take their time to be there.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np

import dualgp as dg

MOST_GROWTH = {"megabytes": 60.0, "files": 2.0, "maps": 400.0}
LARGEST = 700  # rows


def level() -> dict[str, float]:
    """What the process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "files": len(os.listdir("/proc/self/fd")),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
    }


def one_round(rng: np.random.Generator, folder: Path) -> None:
    """A model of some size: fitted, given more rows, saved, loaded, asked; and a campaign of a few rounds."""
    n, d, m = int(rng.integers(20, LARGEST)), int(rng.choice([2, 5])), int(rng.integers(1, 200))
    x, seed = rng.normal(size=(n, d)), int(rng.integers(1 << 30))
    y, path = np.sin(x).sum(axis=1), folder / "model.dgp"
    solver = ("auto", dg.BlockDescent(block_size=64))[seed % 2]
    fitted = dg.GPRegressor(
        dg.Matern32(1.0), noise=0.01, learn=seed % 5 == 0, solver=solver, n_samples=3, random_state=0, max_seconds=10
    )
    fitted.fit(x, y).update(x[:m] + 0.01, y[:m])
    dg.save(fitted, path)
    loaded, new = dg.load(path), rng.normal(size=(m, d))
    for one, other in zip(fitted.predict(new, return_std=True), loaded.predict(new, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)
    search = dg.Search(num_rounds=1, num_candidates=64, num_starts=1, num_steps=3)
    sampler = dg.ThompsonSampler([(-3, 3)] * d, key=jax.random.key(seed), search=search, path=folder / "campaign")
    for _ in range(3):
        asked = sampler.ask(1 + seed % 4)
        sampler.tell(asked, np.sin(asked).sum(axis=1))
    for file in folder.iterdir():
        file.unlink()


def growth(levels: list[dict[str, float]]) -> dict[str, float]:
    """The median of the last quarter less that of the second."""
    quarter = max(1, len(levels) // 4)
    return {
        name: float(np.median([one[name] for one in levels[-quarter:]]))
        - float(np.median([one[name] for one in levels[quarter : 2 * quarter]]))
        for name in MOST_GROWTH
    }


def soak(seconds: float, seed: int = 0) -> list[dict[str, float]]:
    """Levels after each round."""
    rng, levels, began = np.random.default_rng(seed), [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < seconds:
            one_round(rng, Path(folder))
            levels.append({"seconds": round(time.monotonic() - began, 1), **level()})
            print(json.dumps(levels[-1]), flush=True)
    return levels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200.0)
    warnings.simplefilter("ignore")
    found = growth(soak(parser.parse_args().seconds))
    print(json.dumps({"growth": found, "most": MOST_GROWTH}))
    sys.exit(any(found[name] > most for name, most in MOST_GROWTH.items()))
