"""A budget spent on many rows and few passes, or on few rows and many passes: test RMSE and residual of the mean.

    python benchmarks/parts.py [--sets etopo20,covtype] [--entries 2.2e10]

`entries` is the budget, in entries of kernel matrices: as many rows at random as there are 1, 2, 3, 4.5 and 7 passes
for. Matern-3/2 with learned hyperparameters; 5,000 rows to test on. Where the best line lies tells what residual is
enough for an RMSE (`dualgp.solvers.part.SMALL_ERROR`).
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np

import dualgp as dg
from dualgp.data import large

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from large_sets import learned

KEY = jax.random.key(1)
PASSES = (1.0, 2.0, 3.0, 4.5, 7.0)
TESTED = 5000


def measure(name: str, entries: float) -> None:
    data = large(name)
    model, _ = learned(data)
    order, tests = (np.random.default_rng(seed).permutation(len(y)) for seed, y in ((1, data.y), (0, data.y_test)))
    tests = tests[:TESTED]
    for passes in PASSES:
        rows = np.sort(order[: round((entries / passes) ** 0.5)])
        # With weights to start from, zeros, a budget is not spent on some of these rows.
        start = np.zeros((len(rows), 1), np.float32)
        solver = dg.BlockDescent(tol=3e-3)
        posterior = model.condition(
            data.x[rows], data.y[rows], num_samples=0, key=KEY, solver=solver, start=start, max_passes=passes
        )
        rmse = dg.metrics.rmse(data.y_test[tests], np.asarray(posterior.mean(data.x_test[tests])))
        residual, made = float(posterior.solution.residual.max()), posterior.solution.passes
        print(f"{name}, {len(rows):,} rows: {made:.2f} passes, residual {residual:.2g}, RMSE {rmse:.4f}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default="etopo20,covtype,houseelectric")
    arguments.add_argument("--entries", type=float, default=2.2e10)
    options = arguments.parse_args()
    for name in options.sets.split(","):
        measure(name, options.entries)


if __name__ == "__main__":
    main()
