"""A table of 100,000 rows and 8 columns: `dualgp fit` with nothing set, against scikit-learn on 5,000 of its rows.

    python benchmarks/table.py [--rows 100000] [--folder FOLDER] [--without-peer]

The data are a draw from a Matern-3/2 prior (65,536 features, so that the draw is not smoother than it should be) with
lengthscales from 0.5 to 4 on the unit cube, noise variance 0.1, and units of their own for every column.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import dualgp as dg
from dualgp.columns.tables import read_table
from dualgp.table.model import scores
from record import save

NUM_TEST, SUBSET = 5000, 5000


def make(folder: Path, rows: int) -> None:
    """train.csv and test.csv."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(rows + NUM_TEST, 8))
    truth = dg.GaussianProcess(dg.Matern32(np.geomspace(0.5, 4.0, 8)), noise=0.1)
    y = truth.sample_prior(8, 1, key=jax.random.key(0), num_features=65_536)(x)[0]
    y = 200.0 + 30.0 * (y + np.sqrt(0.1) * rng.normal(size=len(y)))
    table = np.column_stack([x * np.geomspace(0.01, 1e4, 8), y])
    names = ",".join([*(f"x{i + 1}" for i in range(8)), "y"])
    for name, part in (("train", table[:rows]), ("test", table[rows:])):
        np.savetxt(folder / f"{name}.csv", part, delimiter=",", header=names, comments="", fmt="%.9g")


def ours(folder: Path) -> dict:
    began = time.perf_counter()
    command = [sys.executable, "-m", "dualgp.table.cli"]
    fit = ["fit", folder / "train.csv", "--target", "y", "-o", folder / "model.dgp", "--quiet"]
    print(subprocess.run([*command, *fit], check=True, capture_output=True, text=True).stdout)
    seconds = time.perf_counter() - began
    evaluate = ["evaluate", folder / "model.dgp", folder / "test.csv", "--json"]
    found = json.loads(subprocess.run([*command, *evaluate], check=True, capture_output=True, text=True).stdout)
    return {"seconds": round(seconds, 1), **found["dualgp"]}


def scikit_learn(folder: Path) -> dict:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    train, test = (
        np.column_stack([c.to_numpy() for c in read_table(folder / f"{name}.csv").columns])
        for name in ("train", "test")
    )
    some = np.random.default_rng(0).permutation(len(train))[:SUBSET]
    mean, std = train[some].mean(axis=0), train[some].std(axis=0)
    kernel = ConstantKernel(1.0) * Matern(np.ones(8), nu=1.5) + WhiteKernel(0.1)
    began = time.perf_counter()
    x, y = ((train[some] - mean) / std)[:, :8], ((train[some] - mean) / std)[:, 8]
    fitted = GaussianProcessRegressor(kernel, alpha=1e-8).fit(x, y)
    seconds = time.perf_counter() - began
    found = fitted.predict(((test - mean) / std)[:, :8], return_std=True)
    return {"seconds": round(seconds, 1), **scores(test[:, 8], found[0] * std[8] + mean[8], found[1] * std[8])}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=100_000)
    arguments.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dualgp-table")
    arguments.add_argument("--without-peer", action="store_true")
    options = arguments.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    make(options.folder, options.rows)
    ways = (
        {"dualgp fit": ours} if options.without_peer else {"dualgp fit": ours, "scikit-learn, 5,000 rows": scikit_learn}
    )
    for name, way in ways.items():
        line = {key: round(value, 5) for key, value in way(options.folder).items()}
        save("table", {"rows": options.rows, "method": name, **line})


if __name__ == "__main__":
    main()
