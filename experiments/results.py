"""Results as JSON lines under experiments/results, written by the same code as those of the benchmarks."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import record

record.RESULTS = Path(__file__).parent / "results"
RESULTS, in_processes, load, save = record.RESULTS, record.in_processes, record.load, record.save


def averages(lines: list[dict], metric: str) -> str:
    """Mean, standard error and number of splits, and the number of steps where it was set."""
    if not lines:
        return ""
    values = np.array([line[metric] for line in lines], float)
    digits = {"rmse": 4, "nll": 3}.get(metric, 0 if values.mean() > 20 else 1)
    text = f"{values.mean():.{digits}f}"
    if len(values) > 1:
        text += f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f} ({len(values)} splits)"
    steps = sorted({line["steps"] for line in lines} - {"0"})
    return text + (f", T = {' / '.join(f'{int(T) // 1000}k' for T in steps[0].split(','))}" if steps else "")
