"""`python tests/attack [--share 0.1] [--seed 0]`: everything here, and one table. What is bad is printed on stderr."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flips
import inputs
import jax
import kills
import numpy as np
import promises
import writers

import dualgp as dg
import tables

MOST_MEMORY = 3 << 30  # bytes, of this process while it reads files of less than a megabyte


def predict(model: Any) -> np.ndarray:
    x = inputs.X[:7]
    if hasattr(model, "encoding"):
        columns = {"a": x[:, 0], "b": x[:, 1], "c": ["up"] * 7}
        return np.stack(list(model.predict(columns).values()))
    return np.stack(model.predict(x, return_std=True) if isinstance(model, dg.GPRegressor) else model.predict(x))


def models() -> dict[str, Any]:
    """One of every kind that people keep in files."""
    from dualgp.table.model import fit_table

    x, y = inputs.X, inputs.Y
    columns = {"a": x[:, 0], "b": x[:, 1], "c": np.where(x[:, 2] > 0, "up", "down"), "y": y}
    rows = np.random.default_rng(1).normal(size=(600, 3))
    model = dg.GaussianProcess(dg.Matern32(0.8) + dg.RBF(2.0), 0.1)
    settings = {"num_samples": 2, "num_features": 64, "key": inputs.KEY, "solver": dg.BlockDescent(block_size=100)}
    return {
        "regressor": inputs.regressor().fit(x, y),
        "sampled": model.condition(rows, np.sin(rows[:, 0]), **settings),
        "table": fit_table(columns, "y", n_samples=2, learn=False, random_state=0),
    }


def files(folder: Path, share: float, seed: int) -> Counter:
    """Flipped bits, damage and edits of every kind of model."""
    counts: Counter = Counter()
    for name, model in models().items():
        path = folder / name
        dg.save(model, path)
        good = predict(dg.load(path))
        kinds: dict[str, tuple[Callable, int, bool]] = {
            "flips": (flips.flips, 8000, False),
            "damage": (flips.mutations, 2000, False),
            "edits": (flips.edits, 2000, True),
        }
        for make, number, may_differ in kinds.values():
            variants = make(path, int(share * number), seed)
            found = flips.outcomes(variants, folder / "variant", predict, good, may_differ=may_differ)
            for outcome, times in found.items():
                counts[outcome.split(":")[0]] += times
                if outcome.split(":")[0] not in ("sentence", "harmless", "changed"):
                    print(f"  {name}: {outcome} ({times})", file=sys.stderr)
    counts["over memory"] = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_MEMORY)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of everything")
    parser.add_argument("--seed", type=int, default=0)
    share, seed = (options := parser.parse_args()).share, options.seed
    rows: list[tuple[str, int, str]] = []

    def note(what: str, tried: int, bad: dict[str, int]) -> None:
        rows.append((what, tried, ", ".join(f"{name} {number}" for name, number in bad.items())))
        print(f"{what}: {tried:,} tried; {rows[-1][2]}", file=sys.stderr, flush=True)
        failures.append(sum(bad.values()))

    failures: list[int] = []
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place in "files", "kills", "writers", "tables":
            (folder / place).mkdir()
        found = files(folder / "files", share, seed)
        fine = found["sentence"] + found["harmless"] + found["changed"]
        bad = {kind: found[kind] for kind in ("silent", "uncaught", "unusable", "odd", "over memory")}
        note("files mutated", fine + sum(bad.values()) - bad["over memory"], bad)
        for what, found in (
            ("calls with odd input", inputs.attack(share, seed)),
            ("runs of the command line", tables.attack(folder / "tables", share, seed)),
        ):
            note(what, sum(found.values()), {kind: found[kind] for kind in inputs.BAD})
        found = kills.attack(folder / "kills", max(2, round(30 * share)), seed=seed)
        note("kills", found["kills"], {kind: found[kind] for kind in ("unequal", "litter")})
        found = writers.attack(folder / "writers", max(2.0, 20.0 * share))
        note(
            "reads beside two writers", found["reads"], {kind: found[kind] for kind in ("damaged", "errors", "litter")}
        )
        jax.clear_caches()
        found = promises.attack(max(12, round(300 * share)), seed)
        note("promises against float64", found["checked"], {"violated": found["violated"]})
    print(f"\n{'attack':28}{'tried':>8}  what must not be")
    for what, tried, bad_ones in rows:
        print(f"{what:28}{tried:8,}  {bad_ones}")
    sys.exit(1 if any(failures) else 0)


if __name__ == "__main__":
    main()
