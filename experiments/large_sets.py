"""Beyond the paper: the default on 91,000 to 1.8 million rows, RMSE and NLL against passes, beside SVGP.

    python experiments/large_sets.py --sets precip --passes 5
    python experiments/large_sets.py --sets etopo20,covtype --passes 3
    python experiments/large_sets.py --sets houseelectric --passes 3600s        an hour, on as many rows as that allows
    python experiments/large_sets.py --table

Matern-3/2 with a lengthscale for each input, learned from neighbourhoods (`dualgp.learning.Neighbours`), the same for
all methods. SVGP has 1,000 inducing points at k-means centres; `nearest` is the GP of the 32 nearest rows of each test
point (add it by `--methods nearest`). Both need a fraction of the time.
"""

import json
import math
import time

import jax
import numpy as np

import dualgp as dg
import paper
import svgp
from datasets import load_large
from results import command_line, in_processes, load

KEY = jax.random.key(0)
LOOKS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # passes after which predictions are scored
NUM_SAMPLES = 15
NEIGHBOURS = 32
SCORED = 20_000  # rows of the test set, at random: all of houseelectric's would take a tenth of a pass for every look


def learned(data) -> tuple[dg.GaussianProcess, float]:
    """The model of a set, and the CPU seconds that it took."""
    began, d = time.process_time(), data.x.shape[1]
    start = dg.GaussianProcess(dg.Matern32(np.full(d, d**0.5)), noise=0.1)
    model = start.learn(data.x, data.y, key=KEY, method=dg.learning.Neighbours())
    return model, time.process_time() - began


def measure(name: str, method: str, budget: str) -> dict:
    """Scores of a method, with the seconds of wall and processor that it had taken by then.

    `budget` of the default: passes, over all rows and with looks on the way, or seconds of wall time such as "3600s".
    """
    data = _with_fewer_tests(load_large(name))
    model, learning = learned(data)
    line = {"n": len(data.y), "d": data.x.shape[1], "noise": float(model.noise), "learning cpu": round(learning, 1)}
    if method in ("SVGP", "nearest"):
        began = time.process_time()
        if method == "SVGP":
            mean, std = svgp.predict(model, data, paper.LARGE_SVGP_POINTS)
        else:
            near = model.condition(data.x, data.y, num_far=0, neighbours=NEIGHBOURS, num_samples=0, key=KEY)
            mean, std = near.predict(data.x_test, noise=True)
        return line | scores(data, mean, std) | {"cpu seconds": round(time.process_time() - began, 1)}
    timed = budget.endswith("s")
    posterior, curve, spent, done = None, [], [0.0, 0.0], 0.0
    for look in [math.inf] if timed else [look for look in LOOKS if look <= float(budget)]:
        if look <= done:  # a step of few rows is long, and so is a check
            continue
        began = time.perf_counter(), time.process_time()
        limits = {"max_seconds": float(budget.removesuffix("s"))} if timed else {"max_passes": look - done}
        if posterior is None:
            limits |= {} if timed else {"num_far": len(data.y)}
            posterior = model.condition(data.x, data.y, num_samples=NUM_SAMPLES, key=KEY, **limits)
        else:
            posterior = posterior.refine(key=jax.random.fold_in(KEY, len(curve)), **limits)
        spent = [spent[0] + time.perf_counter() - began[0], spent[1] + time.process_time() - began[1]]
        done += posterior.solution.passes
        residual = float(np.max(posterior.solution.residual_upper))
        mean, std = posterior.predict(data.x_test, noise=True)
        curve.append(
            {
                "passes": round(done, 2),
                "rows": int(np.count_nonzero(posterior.weights[:, 0])),
                "cpu seconds": round(spent[1], 1),
                **scores(data, mean, std),
                "residual": residual,
            }
        )
        print(json.dumps({"set": name, **curve[-1]}), flush=True)
        if posterior.solution.result is dg.Result.CONVERGED:
            break
    return line | curve[-1] | {"seconds": round(spent[0], 1), "curve": curve}


def _with_fewer_tests(data):
    """At most `SCORED` rows to score on."""
    some = np.random.default_rng(0).permutation(len(data.y_test))[:SCORED]
    return data._replace(x_test=data.x_test[some], y_test=data.y_test[some])


def scores(data, mean: np.ndarray, std: np.ndarray) -> dict:
    return {
        "rmse": round(dg.metrics.rmse(data.y_test, mean), 4),
        "nll": round(dg.metrics.nll(data.y_test, mean, std), 4),
        "coverage90": round(dg.metrics.coverage(data.y_test, mean, std, 0.9), 4),
    }


def table() -> str:
    """One row for each look, in Markdown."""
    rows = [
        "| set | n | method | passes | CPU seconds | RMSE | NLL | coverage of 90 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in [line for line in load("large_sets") if "rmse" in line]:
        for look in line.get("curve", [line]):
            numbers = (
                f"{look['cpu seconds']:.0f} | {look['rmse']:.4f} | {look['nll']:.4f} | {100 * look['coverage90']:.1f} %"
            )
            some = f", of {look['rows']:,} rows" if look.get("rows", line["n"]) < line["n"] else ""
            passes = f"{look.get('passes', '')}{some}"
            rows.append(f"| {line['set']} | {line['n']:,} | {line['method']} | {passes} | {numbers} |")
    return "\n".join(rows)


def main() -> None:
    keys, show = ("set", "method", "budget"), {"table": lambda: print(table())}
    defaults = {"sets": "precip,etopo20,covtype,houseelectric", "methods": "SVGP;default", "passes": "3"}
    options = command_line(__doc__, keys, measure, limit=4 * 3600, show=show, **defaults)
    cells = [
        (name, method, options.passes if method == "default" else "0")
        for name in options.sets.split(",")
        for method in options.methods.split(";")
    ]
    in_processes("large_sets", __file__, cells, keys, options.limit)


if __name__ == "__main__":
    main()
