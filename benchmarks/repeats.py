"""Equal inputs merged, and several outputs in one solve: what they save.

    DUALGP_DATA=... python benchmarks/repeats.py

- merging SET: published hyperparameters, split 0, nothing set, with equal inputs merged and not, in turns in one
  process: seconds after compilation (medians of three), kernel entries, RMSE and NLL.
- outputs N: mean and 64 functions for one output and for ten, N rows of elevators, block descent to a residual of 1e-2.
"""

import statistics
import time

import jax
import numpy as np

import dualgp as dg
from record import command_line, in_processes, load_uci, published_model

CELLS = [("merging", "keggdirected"), ("merging", "protein"), ("outputs", "14940")]
SEEDS = 4  # the first is not timed


def merging(name: str) -> dict:
    data, model = load_uci(name), published_model(name)
    found: dict[bool, list[dict]] = {True: [], False: []}
    for seed in range(SEEDS):
        for merge in found:
            began = time.perf_counter()
            posterior = model.condition(data.x, data.y, merge=merge, key=jax.random.key(seed))
            mean, std = posterior.predict(data.x_test, noise=True)
            found[merge].append(
                {
                    "seconds": time.perf_counter() - began,
                    "entries": posterior.solution.passes * posterior.layout.n**2,
                    "rmse": dg.metrics.rmse(data.y_test, mean),
                    "nll": dg.metrics.nll(data.y_test, mean, std),
                }
            )
    middle = {
        merge: {key: statistics.median(line[key] for line in lines[1:]) for key in lines[0]}
        for merge, lines in found.items()
    }
    return {"n": len(data.y), "different": len(np.unique(data.x, axis=0))} | {
        name: {key: float(f"{value:.5g}") for key, value in middle[merge].items()}
        for name, merge in (("merged", True), ("as they are", False))
    }


def outputs(n: str) -> dict:
    data, model = load_uci("elevators"), published_model("elevators")
    x, y = data.x[: int(n)], data.y[: int(n)]
    several = np.stack([np.roll(y, shift) for shift in range(10)], axis=1)  # as hard as it gets: nothing to share
    seconds: dict[str, list[float]] = {"one": [], "ten": []}
    passes: dict[str, float] = {}
    for seed in range(SEEDS):
        for kind, targets in (("one", y), ("ten", several)):
            began = time.perf_counter()
            run = {"solver": dg.BlockDescent(), "num_samples": 64, "key": jax.random.key(seed)}
            posterior = model.condition(x, targets, **run)
            posterior.predict(data.x_test)
            seconds[kind].append(time.perf_counter() - began)
            passes[kind] = round(posterior.solution.passes, 2)
    return {
        "seconds": {kind: round(statistics.median(all_[1:]), 2) for kind, all_ in seconds.items()},
        "passes": passes,
    }


def measure(kind: str, what: str) -> dict:
    return {"merging": merging, "outputs": outputs}[kind](what)


if __name__ == "__main__":
    command_line(__doc__, ("kind", "what"), measure, limit=1800)
    in_processes("repeats", __file__, CELLS, ("kind", "what"), 1800)
