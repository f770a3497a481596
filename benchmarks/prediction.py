"""Mean and 64 samples at 100,000 test points given 50,000 data: seconds and peak memory.

python benchmarks/prediction.py
"""

import resource
import time

import jax
import numpy as np

import dualgp as dg
from record import prior_draw, save


def main() -> None:
    model = dg.GaussianProcess(dg.Matern32(0.5), noise=0.1)
    data = prior_draw(model, 50_000, d=4, key=jax.random.key(0))
    posterior = model.condition(data.x, data.y, num_samples=64, key=jax.random.key(1), max_passes=0.2)
    points = np.random.default_rng(0).uniform(size=(100_000, 4)).astype(np.float32)
    line: dict = {"n": len(data.y), "points": len(points)}
    for name, predict in {"mean": posterior.mean, "64 samples": posterior.samples}.items():
        for run in ("first", "second"):
            began = time.perf_counter()
            predict(points)
            line[f"{name}, {run} call, s"] = round(time.perf_counter() - began, 1)
    line["gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)
    save("prediction", line)


if __name__ == "__main__":
    main()
