"""How long does it take? `GPRegressor().fit` with nothing set, learning included, and 10,000 predictions.

    python benchmarks/how_long.py [--rows 1000,10000,100000]

Eight inputs, a smooth function and noise. Each size has a process of its own; seconds include compilation.
"""

import resource
import time

import numpy as np

import dualgp as dg
from record import command_line, in_processes, load

ROWS = "1000,10000,50000,100000,200000,500000,1000000,2000000"
NUM_NEW = 10_000


def measure(rows: str) -> dict:
    """Seconds of the clock and of the processors, and the most memory that the process held."""
    rng, n = np.random.default_rng(0), int(rows)
    x = rng.uniform(size=(n + NUM_NEW, 8)).astype(np.float32)
    f = np.sin(6 * x[:, 0]) + np.cos(5 * x[:, 1] * x[:, 2]) + x[:, 3] ** 2 + np.exp(-x[:, 4] * x[:, 5])
    y = f + 0.1 * rng.normal(size=len(f))
    clock, processor = time.perf_counter(), time.process_time()
    regressor = dg.GPRegressor(random_state=0).fit(x[:n], y[:n])
    fitted = time.perf_counter() - clock, time.process_time() - processor
    clock, processor = time.perf_counter(), time.process_time()
    mean, std = regressor.predict(x[n:], return_std=True)
    predicted = time.perf_counter() - clock, time.process_time() - processor
    return {
        "seconds": round(fitted[0], 1),
        "cpu seconds": round(fitted[1], 1),
        "seconds to predict": round(predicted[0], 2),
        "cpu seconds to predict": round(predicted[1], 2),
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "rmse": round(dg.metrics.rmse(y[n:], mean), 5),
        "coverage90": round(dg.metrics.coverage(y[n:], mean, std, 0.9), 4),
    }


def table() -> str:
    """Sizes side by side, in Markdown: the newest line of each."""
    lines = sorted({line["rows"]: line for line in load("how_long") if "seconds" in line}.values(), key=_rows)
    shown = {
        "rows": lambda line: f"{_rows(line):,}",
        "fit, seconds": lambda line: f"{line['seconds']:.0f}",
        "predict 10,000, seconds": lambda line: f"{line['seconds to predict']:.1f}",
        "memory, GB": lambda line: f"{line['gigabytes']:.1f}",
    }
    head, *rows = [[name, *map(show, lines)] for name, show in shown.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _rows(line: dict) -> int:
    return int(line["rows"])


def main() -> None:
    options = command_line(__doc__, ("rows",), measure, limit=3600, rows=ROWS)
    in_processes("how_long", __file__, [(rows,) for rows in options.rows.split(",")], ("rows",), options.limit)


if __name__ == "__main__":
    main()
