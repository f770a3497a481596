"""`python tests/attack [--share 0.1] [--seed 0] [--only files,kills]`: everything here, and one table.

Each part runs in a process of its own, two at a time. What is bad is printed on stderr.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import dualgp as dg
from dualgp.decisions.thompson import ThompsonState

sys.path[0] = str(Path(__file__).parents[1])
from attack import arrays, estimators, flips, inputs, kills, promises, tables, writers  # noqa: E402

MOST_MEMORY = 3 << 30  # bytes, of a process that reads files of less than a megabyte
AT_ONCE = 2
NAMES = {  # the longest first
    "inputs": "calls with odd input",
    "tables": "runs of the command line",
    "kills": "kills",
    "files": "files mutated",
    "promises": "promises against float64",
    "writers": "reads beside two writers",
}


def predict(model: Any) -> np.ndarray:
    x = arrays.X[:7]
    if isinstance(model, ThompsonState):
        return np.concatenate([np.ravel(part) for part in (model.bounds, model.x, model.y, model.pending, model.noise)])
    if hasattr(model, "encoding"):
        columns = {"a": x[:, 0], "b": x[:, 1], "c": ["up"] * 7}
        return np.stack(list(model.predict(columns).values()))
    if isinstance(model, dg.GPRegressor):
        asked = x if model.encoding_ is None else estimators.frame()[:7]
        return np.concatenate([model.predict(asked, quantiles=[0.1, 0.9]).ravel(), model.sample_y(asked).ravel()])
    return np.stack(model.predict(x))


def models() -> dict[str, Any]:
    """One of every kind that people keep in files."""
    from dualgp.table.model import fit_table

    x, y, regressor = arrays.X, arrays.Y, arrays.regressor
    columns = {"a": x[:, 0], "b": x[:, 1], "c": np.where(x[:, 2] > 0, "up", "down"), "y": y}
    rows = np.random.default_rng(1).normal(size=(600, 3))
    model = dg.GaussianProcess(dg.Matern32(0.8) + dg.RBF(2.0), 0.1)
    settings = {"num_samples": 2, "num_features": 64, "key": arrays.KEY, "solver": dg.BlockDescent(block_size=100)}
    campaign = dg.ThompsonSampler([(-9, 9)] * 3, key=arrays.KEY, model=dg.GaussianProcess(arrays.KERNEL, 0.1))
    campaign.ask(2)
    campaign.tell(x, y, noise=np.full(24, 0.1))
    return {
        "regressor": regressor().fit(x, y),
        "sampled": model.condition(rows, np.sin(rows[:, 0]), **settings),
        "table": fit_table(columns, "y", n_samples=2, learn=False, random_state=0),
        "several outputs": regressor().fit(x, estimators.BOTH),
        "noise that varies, of a frame": regressor(kernel=None, noise="input-dependent").fit(estimators.frame(), y),
        "warped": regressor(target_transform="yeo-johnson").fit(x, y, sample_weight=np.abs(y) + 0.1),
        "campaign": campaign.state,
    }


def files(folder: Path, share: float, seed: int) -> Counter:
    """Flipped bits, damage and edits of every kind of model."""
    counts: Counter = Counter()
    for name, model in models().items():
        path = folder / name
        dg.save(model, path)
        good = predict(dg.load(path))
        kinds: dict[str, tuple[Callable, int, bool]] = {
            "flips": (flips.flips, 3400, False),
            "damage": (flips.mutations, 900, False),
            "edits": (flips.edits, 900, True),
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


def run(part: str, folder: Path, share: float, seed: int) -> tuple[int, dict[str, int]]:
    """How much was tried in a part of the attack, and what must not be, with its number."""
    if part == "files":
        found = files(folder, share, seed)
        bad = {kind: found[kind] for kind in ("silent", "uncaught", "unusable", "odd", "over memory")}
        return sum(found.values()) - found["over memory"], bad
    if part in ("inputs", "tables"):
        found = inputs.attack(share, seed) if part == "inputs" else tables.attack(folder, share, seed)
        return sum(found.values()), {kind: found[kind] for kind in inputs.BAD}
    if part == "kills":
        found = kills.attack(folder, max(2, round(30 * share)), seed=seed)
        return found["kills"], {kind: found[kind] for kind in ("unequal", "litter")}
    if part == "writers":
        found = writers.attack(folder, max(2.0, 20.0 * share))
        return found["reads"], {kind: found[kind] for kind in ("damaged", "errors", "litter")}
    found = promises.attack(max(12, round(300 * share)), seed)
    return found["checked"], {"violated": found["violated"]}


def run_alone(part: str, share: float, seed: int) -> dict[str, Any]:
    """`run` in a process of its own, or what it ended with instead."""
    command = [sys.executable, str(Path(__file__).parent), "--one", part, "--share", str(share), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return {"tried": 0, "bad": {"ended with code": done.returncode}, "seconds": 0.0}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(NAMES), help="parts of the attack, with commas between them")
    parser.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            tried, bad = run(options.one, Path(folder), options.share, options.seed)
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
        print(json.dumps({"tried": tried, "bad": bad, "seconds": seconds}))
        return
    parts = options.only.split(",")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda part: run_alone(part, options.share, options.seed), parts))
    print(f"\n{'attack':28}{'tried':>8}{'CPU s':>8}  what must not be")
    for part, one in zip(parts, found, strict=True):
        shown = ", ".join(f"{kind} {number}" for kind, number in one["bad"].items())
        print(f"{NAMES[part]:28}{one['tried']:8,}{one['seconds']:8.0f}  {shown}")
    sys.exit(1 if any(any(one["bad"].values()) for one in found) else 0)


if __name__ == "__main__":
    main()
