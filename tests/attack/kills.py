"""Processes that are killed at random moments and started again: does the end equal that of an undisturbed one?"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

VICTIM = Path(__file__).with_name("victims.py")
KINDS = ("solve", "campaign", "fit")


def run(kind: str, folder: Path, seconds: float | None = None) -> bool:
    """Whether it ended within so many seconds; it is killed if not."""
    process = subprocess.Popen([sys.executable, str(VICTIM), kind, str(folder)], stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False
    if process.returncode:
        raise RuntimeError(errors.decode())
    return True


def attack(folder: Path, number: int = 30, kills_each: int = 5, seed: int = 0) -> Counter:
    """Kills, and ends that differ from the undisturbed run or leave anything behind."""
    rng, counts = np.random.default_rng(seed), Counter(kills=0, unequal=0, litter=0)
    expected, seconds = {}, {}
    for kind in KINDS:
        place = folder / f"{kind}-undisturbed"
        place.mkdir()
        began = time.monotonic()
        run(kind, place)
        seconds[kind] = time.monotonic() - began
        expected[kind] = dict(np.load(place / "result.npz"))
    while counts["kills"] < number:
        kind = KINDS[counts["runs"] % len(KINDS)]
        place = folder / f"{kind}-{counts['runs']}"
        place.mkdir()
        counts["runs"] += 1
        for _ in range(kills_each):
            if run(kind, place, float(rng.uniform(0.3, 1.0)) * seconds[kind]):
                break
            counts["kills"] += 1
        else:
            run(kind, place)
        found = dict(np.load(place / "result.npz"))
        counts["unequal"] += not all(np.array_equal(found[name], value) for name, value in expected[kind].items())
        left = {path.name for path in place.iterdir()} - {"result.npz", *(["state"] if kind == "campaign" else [])}
        counts["litter"] += bool(left)
        if left:
            print(f"  litter of {kind}: {', '.join(sorted(left))}", file=sys.stderr)
    return counts
