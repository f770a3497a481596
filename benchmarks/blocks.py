"""What a block should be made of: passes of BlockDescent to a residual of 1e-2, mean + 8 samples, three seeds.

    DUALGP_DATA=... python benchmarks/blocks.py [--sets pol,elevators,bike]

Sweeps the share of a block that is one neighbourhood (0: random points only), and the block size in units of sqrt(n).
The right-hand sides are the same for every setting and seed; a seed draws other blocks.
"""

import argparse
import statistics

import jax
import numpy as np

import dualgp as dg
from record import load_uci, published_model, save

SHARES, SIZES, SEEDS = (0.0, 0.5, 0.75, 0.875), (2.0, 4.0, 16.0), (0, 1, 2)


def measure(operator: dg.KernelOperator, targets: np.ndarray, local: float, size: float) -> dict:
    solver = dg.BlockDescent(block_size=int(size * operator.n**0.5), local=local)
    runs = [dg.solve(operator, targets, solver, key=jax.random.key(seed), max_passes=40) for seed in SEEDS]
    return {
        "local": local,
        "size": size,
        "passes": [round(run.passes, 1) for run in runs],
        "seconds": round(statistics.median(run.seconds for run in runs), 1),
        "residual": [round(float(run.residual.max()), 4) for run in runs],
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default="pol,elevators,bike")
    for name in arguments.parse_args().sets.split(","):
        data, model = load_uci(name), published_model(name)
        first = model.condition(data.x, data.y, num_samples=8, key=jax.random.key(0), max_passes=1.0)
        operator = dg.KernelOperator(model.kernel, data.x, model.noise)
        for local, size in [(share, 8.0) for share in SHARES] + [(0.75, size) for size in SIZES]:
            save("blocks", {"set": name, **measure(operator, np.asarray(first.targets), local, size)})


if __name__ == "__main__":
    main()
