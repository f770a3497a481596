"""Results as JSON lines under experiments/results, written by the same code as those of the benchmarks."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import record

record.RESULTS = Path(__file__).parent / "results"
RESULTS, command_line, in_processes = record.RESULTS, record.command_line, record.in_processes
load, save = record.load, record.save


def averages(lines: list[dict], metric: str) -> str:
    """Mean, standard error and number of splits."""
    if not lines:
        return ""
    values = np.array([line[metric] for line in lines], float)
    digits = {"rmse": 4, "nll": 3}.get(metric, 0 if values.mean() > 20 else 1)
    text = f"{values.mean():.{digits}f}"
    if len(values) > 1:
        text += f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f} ({len(values)})"
    return text


def in_thousands(steps: str) -> str:
    """Numbers of steps as 100k / 20k."""
    numbers = [int(number) for number in steps.split(",")]
    return " / ".join(f"{number / 1000:g}k" if number >= 1000 else str(number) for number in numbers)
