"""Near field and far field: accuracy against passes, from nothing on large tables, and what it costs.

    DUALGP_DATA=... python benchmarks/near_far.py [--cells "default pol;budgets elevators;nothing covtype;..."]

- default SET: published hyperparameters, split 0, nothing set; beside it the far field alone, 64 functions, residual
  1e-2, in turns in one process, each compiled before; and the exact GP where it has a factor (up to 16,000 rows).
- budgets SET: far field alone, neighbours alone and both after 0.25, 0.5, 1, 2 and 3 passes.
- nothing SET: hyperparameters learned, kernel chosen, then predictions of 20,000 held-out rows, in one process.
- rows N: seconds and memory from nothing for N rows of a function of 8 inputs.
- std D: the relative error of standard deviations against exact ones, n = 4,000 in D dimensions, by block descent.
- point N: milliseconds for one mean, and for one with its standard deviation, given N rows of 8 inputs.

`nothing` also times 100,000 predictions with standard deviations where so many rows are held out.
"""

import argparse
import resource
import statistics
import time

import jax
import numpy as np

import dualgp as dg
from record import LOADERS, in_processes, load, load_large, load_uci, published_model

KEY, BUDGETS, SCORED = jax.random.key(0), (0.25, 0.5, 1.0, 2.0, 3.0), 20_000
MANY_POINTS, SINGLE_POINTS = 100_000, 51
SETS = ("pol", "elevators", "bike", "protein", "keggdirected")
CELLS = [
    *(("default", name) for name in SETS),
    *(("budgets", name) for name in (*SETS, "etopo20")),
    *(("nothing", name) for name in ("covtype", "houseelectric", "etopo20", "precip")),
    *(("rows", str(n)) for n in (200_000, 400_000, 800_000, 1_600_000)),
    *(("std", str(d)) for d in (2, 3, 8)),
    ("point", "100000"),
]


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict:
    """RMSE, NLL and the share inside the 90 % band."""
    covered = float(np.mean(np.abs(mean - y) <= 1.6448536 * std))
    return {
        "rmse": round(dg.metrics.rmse(y, mean), 5),
        "nll": round(dg.metrics.nll(y, mean, std), 4),
        "covered": round(covered, 4),
    }


def default(name: str) -> dict:
    data, model = load_uci(name), published_model(name)
    far = {"neighbours": 0, "num_samples": 64, "solver": dg.BlockDescent()}
    methods: dict[str, dict] = {"default": {}, "far": far}
    line: dict = {"n": len(data.y)}
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    for seed in range(4):  # the first time it is compiled
        for method, settings in methods.items():
            began = time.perf_counter()
            posterior = model.condition(data.x, data.y, key=jax.random.key(seed), **settings)
            prediction = posterior.predict(data.x_test, noise=True)
            seconds[method].append(time.perf_counter() - began)
            line[f"{method} {seed}"] = scores(data.y_test, *prediction) | {
                "passes": round(posterior.solution.passes, 2)
            }
    line["seconds"] = {method: round(statistics.median(taken[1:]), 2) for method, taken in seconds.items()}
    if len(data.y) <= 16_000:
        exact = model.condition(data.x, data.y, solver=dg.Cholesky(), num_samples=0)
        line["exact"] = scores(data.y_test, *exact.predict(data.x_test, noise=True))
    return line


def budgets(name: str) -> dict:
    if name in LOADERS:
        data = load_large(name)
        x, y, x_test, y_test = data.x[:60_000], data.y[:60_000], data.x_test[:5000], data.y_test[:5000]
        model = dg.learn(dg.GaussianProcess(dg.Matern32(np.ones(x.shape[1])), 0.1), x, y, key=KEY).model
    else:
        data, model = load_uci(name), published_model(name)
        x, y, x_test, y_test = data.x, data.y, data.x_test, data.y_test
    line: dict = {"n": len(y)}
    for k in (32, 128):
        near = model.condition(x, y, num_far=0, neighbours=k, num_samples=0, key=KEY)
        line[f"near {k}"] = scores(y_test, *near.predict(x_test, noise=True))
    for passes in BUDGETS:
        for label, neighbours in (("far", 0), ("both", 128)):
            settings = {"solver": dg.BlockDescent(tol=0.0), "neighbours": neighbours, "max_passes": passes}
            posterior = model.condition(x, y, key=KEY, memory=0, **settings)
            line[f"{label} {passes}"] = scores(y_test, *posterior.predict(x_test, noise=True))
    return line


def nothing(name: str) -> dict:
    data = load_large(name)
    chosen = np.random.default_rng(0).permutation(len(data.y_test))[:SCORED]
    began, processor = time.perf_counter(), time.process_time()
    learned = dg.learn(None, data.x, data.y, key=KEY)
    learning = time.perf_counter() - began
    posterior = learned.posterior or learned.model.condition(data.x, data.y, key=KEY)
    conditioned = time.perf_counter() - began
    mean, std = posterior.predict(data.x_test[chosen], noise=True)
    taken = {"learning": learning, "conditioned": conditioned, "all": time.perf_counter() - began}
    if len(data.y_test) >= MANY_POINTS:
        began_again = time.perf_counter()
        posterior.predict(data.x_test[:MANY_POINTS])
        taken["100,000 predictions"] = time.perf_counter() - began_again
    return {
        "n": len(data.y),
        **scores(data.y_test[chosen], mean, std),
        "seconds": {what: round(seconds, 1) for what, seconds in taken.items()},
        "processor seconds": round(time.process_time() - processor, 1),
        "far": posterior.num_far,
        "neighbours": posterior.neighbours,
        "kept aside": posterior.solution.validation._asdict(),
        "kernel": repr(learned.model.kernel),
        "noise": float(learned.model.noise),
        **memory(),
    }


def made_up(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, values of a function of 8 inputs there, and these with noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(n, 8)).astype(np.float32)
    f = np.sin(6 * x[:, 0]) + np.cos(5 * x[:, 1] * x[:, 2]) + x[:, 3] ** 2 + np.exp(-x[:, 4] * x[:, 5])
    return x, f, f + 0.1 * rng.normal(size=len(f))


def rows(n: str) -> dict:
    x, f, y = made_up(int(n) + 1000)
    began = time.perf_counter()
    model = dg.learn(None, x[: int(n)], y[: int(n)], key=KEY).model
    learning = time.perf_counter() - began
    posterior = model.condition(x[: int(n)], y[: int(n)], key=KEY)
    mean, std = posterior.predict(x[int(n) :])
    seconds = time.perf_counter() - began
    found = {"seconds": round(seconds, 1), "learning": round(learning, 1), "far": posterior.num_far}
    return found | {
        "rmse of f": round(dg.metrics.rmse(f[int(n) :], mean), 5),
        "mean std": float(std.mean()),
        **memory(),
    }


def std(d: str) -> dict:
    errors: dict[int, list[float]] = {0: [], 16: [], 64: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, x_new = rng.uniform(size=(4000, int(d))), rng.uniform(size=(500, int(d)))
        model = dg.GaussianProcess(dg.Matern32(0.3 * np.sqrt(int(d))), noise=0.01)
        exact = model.condition(x, np.sin(x.sum(axis=1)), num_samples=0).std(x_new)
        for num_samples, found in errors.items():
            solver, key = dg.BlockDescent(), jax.random.key(seed)
            posterior = model.condition(x, np.sin(x.sum(axis=1)), solver=solver, num_samples=num_samples, key=key)
            found.append(float(np.sqrt(np.mean(np.log(posterior.std(x_new) / exact) ** 2))))
    return {f"{num} functions": round(statistics.median(found), 4) for num, found in errors.items()}


def point(n: str) -> dict:
    x, _, y = made_up(int(n) + SINGLE_POINTS)
    model = dg.GaussianProcess(dg.Matern32(1.0), 0.01)
    posterior = model.condition(x[: int(n)], y[: int(n)], key=KEY)
    line: dict = {"far": posterior.num_far, "neighbours": posterior.neighbours}
    for what, ask in {"mean": posterior.mean, "mean and std": posterior.predict}.items():
        taken = []
        for one in x[int(n) :]:
            began = time.perf_counter()
            ask(one[None])
            taken.append(time.perf_counter() - began)
        line[f"ms, {what}"] = round(1000 * statistics.median(taken), 2)
    return line


def memory() -> dict:
    """The most that this process has held."""
    return {"GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}


MEASURES = {"default": default, "budgets": budgets, "nothing": nothing, "rows": rows, "std": std, "point": point}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", default=";".join(" ".join(cell) for cell in CELLS))
    arguments.add_argument("--limit", type=float, default=1200.0)
    arguments.add_argument("--one", nargs=2)
    options = arguments.parse_args()
    if options.one:
        import json

        print(json.dumps(MEASURES[options.one[0]](options.one[1])))
        return
    cells = [tuple(cell.split()) for cell in options.cells.split(";")]
    in_processes("near_far", __file__, cells, ("what", "of"), options.limit)
    for line in load("near_far"):
        print(line)


if __name__ == "__main__":
    main()
