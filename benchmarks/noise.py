"""Outliers and noise that depends on the inputs: how good predictions are, as JSON lines in results/noise.jsonl.

    python benchmarks/noise.py                 # all cells that are not there yet
    python benchmarks/noise.py --one outliers pol dirty robust 4000

outliers  SET clean|dirty plain|robust ROWS    a tenth of the dirty targets are moved by 3 to 10 standard deviations
varying   SET all one|input-dependent ROWS     coverage of the 90 % band in each fifth of the predicted noise
"""

import argparse
import time
from typing import Any

import numpy as np

import dualgp as dg
from record import load, load_uci, save

SHARE, LEAST, MOST = 0.1, 3.0, 10.0  # of the rows, and how many standard deviations they are moved by
TEST_ROWS = 2_000
KEYS = ("what", "set", "data", "fit", "rows")
CELLS = [
    *(
        ("outliers", name, data, fit, 4000)
        for name in ("elevators", "pol")
        for data in ("clean", "dirty")
        for fit in ("plain", "robust")
    ),
    *(
        ("varying", name, "all", fit, rows)
        for name, rows in (("synthetic", 20_000), ("bike", 4000))
        for fit in ("one", "input-dependent")
    ),
]


def with_outliers(y: np.ndarray) -> np.ndarray:
    """The targets, a tenth of them far away."""
    rng, dirty = np.random.default_rng(1), y.copy()
    bad = rng.permutation(len(y))[: round(SHARE * len(y))]
    dirty[bad] += rng.choice([-1.0, 1.0], len(bad)) * rng.uniform(LEAST, MOST, len(bad)) * y.std()
    return dirty


def synthetic(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of two inputs; the standard deviation of the noise grows tenfold along the third."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (rows, 3))
    y = np.sin(6 * x[:, 0]) + np.cos(4 * x[:, 1]) + 0.05 * 10.0 ** x[:, 2] * rng.normal(size=rows)
    return x, y


def data_of(name: str, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows to fit and rows to test on."""
    if name == "synthetic":
        return *synthetic(rows, 0), *synthetic(10_000, 1)
    found = load_uci(name)
    some = np.random.default_rng(0).permutation(len(found.x))[:rows]
    test = slice(0, TEST_ROWS)
    return found.x[some], found.y[some].astype(np.float64), found.x_test[test], found.y_test[test].astype(np.float64)


def measure(what: str, name: str, data: str, fit: str, rows: int) -> dict[str, Any]:
    """One cell."""
    x, y, x_test, y_test = data_of(name, int(rows))
    y = with_outliers(y) if data == "dirty" else y
    noise = "input-dependent" if fit == "input-dependent" else None
    began = time.process_time()
    fitted = dg.GPRegressor(noise=noise, robust=fit == "robust", random_state=0).fit(x, y)
    seconds = time.process_time() - began
    mean, std = fitted.predict(x_test, return_std=True)
    inside = (y_test >= mean - 1.6448536 * std) & (y_test <= mean + 1.6448536 * std)
    fifths = [float(inside[part].mean()) for part in np.array_split(np.argsort(std, kind="stable"), 5)]
    line = {"rmse": dg.metrics.rmse(y_test, mean), "nll": dg.metrics.nll(y_test, mean, std)}
    line |= {"coverage": float(inside.mean()), "fifths": fifths, "cpu_seconds": seconds}
    return line | {"decisions": list(fitted.decisions_), "message": fitted.message_}


def main() -> None:
    """Measure what is missing."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--one", nargs=5, metavar=tuple(key.upper() for key in KEYS), help="one cell")
    one = arguments.parse_args().one
    cells = [(*one[:4], int(one[4]))] if one else CELLS
    for cell in cells:
        key = dict(zip(KEYS, cell, strict=True))
        if not any(all(line.get(name) == value for name, value in key.items()) for line in load("noise")):
            save("noise", key | measure(*cell))


if __name__ == "__main__":
    main()
