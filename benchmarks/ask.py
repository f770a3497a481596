"""One ask: 1,000 points given 20,000 results in 8 dimensions, by the default and by conjugate gradients.

    python benchmarks/ask.py [--n 20000] [--num 1000] [--methods "default;CG"]

A process for each method. The target is a draw of the prior (Matern-3/2, lengthscale 0.3 or as given) with noise 1e-2;
hyperparameters are given, so that an ask is one solve and one search. Wall and processor seconds, with compilation.
"""

import resource
import time

import jax
import numpy as np

import dualgp as dg
from record import command_line, in_processes

DIMENSIONS, NOISE = 8, 1e-2


def measure(n: str, num: str, lengthscale: str, method: str) -> dict:
    model = dg.GaussianProcess(dg.Matern32(float(lengthscale)), NOISE)
    rng = np.random.default_rng(0)
    x = rng.random((int(n), DIMENSIONS))
    y = model.sample_prior(DIMENSIONS, 1, key=jax.random.key(7))(x)[0] + NOISE**0.5 * rng.standard_normal(len(x))
    stages: dict[str, list[float]] = {}

    def note(words: str) -> None:
        now = [time.perf_counter(), time.process_time()]
        stages.setdefault(words.split(",")[0].split(" ")[0], now)

    sampler = dg.ThompsonSampler(
        [(0.0, 1.0)] * DIMENSIONS,
        key=jax.random.key(0),
        model=model,
        relearn=None,
        solver="auto" if method == "default" else dg.CG(),
        progress=note,
    )
    sampler.tell(x, y)
    began = time.perf_counter(), time.process_time()
    proposed = sampler.ask(int(num))
    ended = [time.perf_counter(), time.process_time()]
    found = model.sample_prior(DIMENSIONS, 1, key=jax.random.key(7))(proposed)[0]
    moments = [*stages.values(), ended]
    spent = {
        name: [round(b - a, 1) for a, b in zip(moments[i], moments[i + 1], strict=True)]
        for i, name in enumerate(stages)
    }
    return {
        "seconds": round(ended[0] - began[0], 1),
        "cpu seconds": round(ended[1] - began[1], 1),
        "stages (wall, cpu)": spent,
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
        "best before": round(float(y.max()), 3),
        "best proposed": round(float(found.max()), 3),
        "mean of proposed": round(float(found.mean()), 3),
    }


def main() -> None:
    keys, defaults = ("n", "num", "lengthscale", "method"), {"n": "20000", "num": "1000", "lengthscale": "0.3"}
    options = command_line(__doc__, keys, measure, limit=3600, methods="default;CG", **defaults)
    cells = [(options.n, options.num, options.lengthscale, method) for method in options.methods.split(";")]
    in_processes("ask", __file__, cells, keys, options.limit)


if __name__ == "__main__":
    main()
