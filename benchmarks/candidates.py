"""Which kernel: each candidate by hand against the one that `Neighbours` chooses, on real sets.

    DUALGP_DATA=... python benchmarks/candidates.py [--sets pol,elevators,...] [--methods chosen;Matern32;...]

Inputs and targets are standardised, one lengthscale for each input. A cell is a process of its own: it learns from all
training rows by blocks and predicts up to 5,000 test rows from their 128 nearest rows alone. "chosen" starts from
nothing; "trend" is Matern-3/2 and a linear kernel. Processor seconds are those of learning, compilation included.
"""

import time
from typing import Any

import jax
import numpy as np

import dualgp as dg
from dualgp.learning.candidates import STRETCH
from record import LOADERS, Dataset, load_large, load_uci, run_cells

KEY, SCORED, NEAR = jax.random.key(0), 5000, 128
SETS = "precip,elevators,pol,protein,bike,keggdirected,etopo20,covtype,houseelectric"
KINDS: dict[str, Any] = {kind.__name__: kind for kind in STRETCH}


def dataset(name: str) -> Dataset:
    """A UCI split, or large data with a random tenth held out."""
    return load_large(name) if name in LOADERS else load_uci(name)


def start(method: str, d: int) -> dg.GaussianProcess | None:
    """The model to learn from; None leaves the kernel to be chosen."""
    if method == "chosen":
        return None
    scales = np.full(d, d**0.5)
    if method == "trend":
        return dg.GaussianProcess(dg.Matern32(scales) + dg.Linear(3.0 * scales), 0.1)
    return dg.GaussianProcess(KINDS[method](STRETCH[KINDS[method]] * scales), 0.1)


def measure(name: str, method: str) -> dict:
    data = dataset(name)
    some = np.random.default_rng(0).permutation(len(data.y_test))[:SCORED]
    began, before = time.perf_counter(), time.process_time()
    model = start(method, data.x.shape[1])
    learned = dg.learn(model, data.x, data.y, key=KEY, method=dg.learning.Neighbours())
    line: dict = {"seconds": round(time.perf_counter() - began, 1)}
    line["processor seconds"] = round(time.process_time() - before, 1)
    near = learned.model.condition(data.x, data.y, num_far=0, neighbours=NEAR, num_samples=0, key=KEY)
    y, (mean, std) = data.y_test[some], near.predict(data.x_test[some], noise=True)
    line |= {"rmse": round(dg.metrics.rmse(y, mean), 4), "nll": round(dg.metrics.nll(y, mean, std), 4)}
    line["covered"] = round(dg.metrics.coverage(y, mean, std, 0.9), 3)
    low, high = near.quantile(data.x_test[some], [0.05, 0.95]).T
    line["covered, calibrated"] = round(float(np.mean((y >= low) & (y <= high))), 3)
    line["noise"] = float(learned.model.noise)
    lost = {kernel: round(nats, 4) for kernel, nats in learned.kernels.items()}
    return line | ({"kernel": type(learned.model.kernel).__name__, "lost": lost} if lost else {})


if __name__ == "__main__":
    run_cells("candidates", __file__, __doc__, measure, SETS, ["chosen", *KINDS, "trend"], 1800.0, set())
