"""Processes that write one path as fast as they can, and one that reads it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from dualgp._npz import read, write

WRITER = """
import sys, time, numpy as np
from dualgp._npz import write
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    write(sys.argv[1], {"value": float(sys.argv[2])}, {"array": np.full(int(sys.argv[4]), float(sys.argv[2]))})
"""


def attack(folder: Path, seconds: float = 20.0, size: int = 20_000) -> Counter:
    """Reads, damaged ones, and errors of the writers."""
    path, counts = folder / "shared", Counter(reads=0, damaged=0, errors=0, litter=0)
    write(path, {"value": 0.0}, {"array": np.zeros(size)})
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, value, str(seconds), str(size)]) for value in "12"]
    while any(writer.poll() is None for writer in writers):
        counts["reads"] += 1
        try:
            header, arrays = read(path)
            counts["damaged"] += not (arrays["array"] == header["value"]).all()
            counts[f"from writer {header['value']:g}"] += 1
        except (OSError, ValueError):
            counts["damaged"] += 1
        time.sleep(0.001)
    counts["errors"] = sum(bool(writer.returncode) for writer in writers)
    counts["litter"] = len(list(folder.iterdir())) - 1
    return counts
