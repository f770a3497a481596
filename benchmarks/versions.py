"""Two checkouts side by side: seconds from imported libraries to mean, 64 samples and predictions, in turns.

    DUALGP_DATA=... python benchmarks/versions.py --other /path/to/other/checkout [--repeats 3] [--sets pol,elevators]

Split 0, published hyperparameters, nothing set; `demo` is 50,000 points in two dimensions. Every run is a process of
its own, compilation included; "again" is the mean of three more seeds in that process: how many passes a solve takes
depends on the seed, and a seed means other numbers in another version. Prints medians and this / other.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
RUN = """
import json, sys, time
import jax, numpy as np
import dualgp as dg
try:
    from datasets import published_model, load_uci, prior_draw
except ImportError:
    from dualgp.data import published_model, uci as load_uci, prior_draw
name, num_samples = sys.argv[1], int(sys.argv[2])
if name == "demo":
    model = dg.GaussianProcess(dg.Matern32(0.2), noise=0.1)
    data = prior_draw(model, 50_000, d=2, key=jax.random.key(1), num_test=3000)
else:
    data, model = load_uci(name), published_model(name)
def run(seed):
    began = time.perf_counter()
    post = model.condition(data.x, data.y, num_samples=num_samples, key=jax.random.key(seed))
    mean, std = post.predict(data.x_test)
    rmse = np.sqrt(np.mean((mean - data.y_test) ** 2))
    return time.perf_counter() - began, post.solution.passes, rmse
cold = run(0)[0]
again, passes, rmse = np.mean([run(seed) for seed in (1, 2, 3)], axis=0)
print(json.dumps({"cold": cold, "again": again, "passes": passes, "rmse": rmse}))
"""


def measure(checkout: Path, name: str, num_samples: int) -> dict:
    """One run in a process of its own, with the package of that checkout and an empty compilation cache."""
    environment = os.environ | {
        "PYTHONPATH": f"{checkout / 'src'}:{checkout / 'experiments'}",
        "JAX_COMPILATION_CACHE_DIR": "",
    }
    command = [sys.executable, "-c", RUN, name, str(num_samples)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--other", type=Path, required=True)
    arguments.add_argument("--sets", default="pol,elevators,protein,demo")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--samples", type=int, default=64)
    options = arguments.parse_args()
    for name in options.sets.split(","):
        runs: dict[Path, list[dict]] = {HERE: [], options.other: []}
        for _ in range(options.repeats):
            for checkout, found in runs.items():
                found.append(measure(checkout, name, options.samples))
        medians = [{key: statistics.median(run[key] for run in found) for key in found[0]} for found in runs.values()]
        ratio = {key: round(medians[0][key] / medians[1][key], 3) for key in medians[0]}
        print(json.dumps({"set": name, "this": medians[0], "other": medians[1], "ratio": ratio}), flush=True)


if __name__ == "__main__":
    main()
