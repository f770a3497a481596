"""From nothing to predictions: hyperparameters learned, then mean and error bars at the test points.

    DUALGP_DATA=... python benchmarks/learning.py [--sets elevators,pol,protein,precip] [--methods ...] [--limit 1200]

One lengthscale for each input. Every cell is a process of its own, compilation included; seconds are those of the clock
and of the processors.

- default: `dualgp.learn(None, ...)`, which chooses the kernel, then `condition` if that is left to do.
- neighbours, all rows: Matern-3/2 by `Neighbours()`, and by `FullData()` from there.
- near: as neighbours, with the kernel chosen, and predictions from the 200 nearest rows alone.
- published: no learning, the hyperparameters published with the paper.
- GPBoost: Vecchia's approximation with 20 neighbours for learning and prediction.
"""

import resource
import time

import jax
import numpy as np

import dualgp as dg
from record import LOADERS, Dataset, load_large, load_uci, published_model, run_cells

KEY = jax.random.key(0)


def dataset(name: str) -> Dataset:
    """A UCI split, or large data with a random tenth held out."""
    return load_large(name) if name in LOADERS else load_uci(name)


def start(d: int) -> dg.GaussianProcess:
    return dg.GaussianProcess(dg.Matern32(np.full(d, d**0.5)), noise=0.1)


def default(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    learned = dg.learn(None, data.x, data.y, key=KEY)
    more = {"kernels": {name: round(lost, 4) for name, lost in learned.kernels.items()}}
    if learned.posterior is None:
        mean, std, found = condition(learned.model, data)
        return mean, std, more | found
    return *learned.posterior.predict(data.x_test, noise=True), more


def near(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    learned = dg.learn(None, data.x, data.y, key=KEY, method=dg.learning.Neighbours())
    posterior = learned.model.condition(data.x, data.y, num_far=0, neighbours=200, num_samples=0, key=KEY)
    kernels = {name: round(lost, 4) for name, lost in learned.kernels.items()}
    return *posterior.predict(data.x_test, noise=True), {"kernels": kernels}


def all_rows(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    learned = dg.learn(start(data.x.shape[1]), data.x, data.y, key=KEY, method=dg.learning.FullData())
    steps = sum(step.stage == dg.learning.FullData.stage for step in learned.history)
    passes = learned.history[-1].passes + learned.posterior.solution.passes
    more = {"steps": steps, "passes": round(passes, 1), "noise": float(learned.model.noise)}
    return *learned.posterior.predict(data.x_test, noise=True), more


def neighbours(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    model = start(data.x.shape[1]).learn(data.x, data.y, key=KEY, method=dg.learning.Neighbours())
    return condition(model, data)


def published(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    return condition(published_model(name), data)


def condition(model: dg.GaussianProcess, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    posterior = model.condition(data.x, data.y, key=KEY)
    more = {"passes": round(posterior.solution.passes, 1), "noise": float(model.noise)}
    return *posterior.predict(data.x_test, noise=True), more


def gpboost(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    import gpboost

    model = gpboost.GPModel(
        gp_coords=data.x.astype(np.float64),
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=20,
        likelihood="gaussian",
    )
    model.fit(y=data.y.astype(np.float64))
    found = model.predict(gp_coords_pred=data.x_test.astype(np.float64), predict_var=True, predict_response=True)
    return found["mu"], np.sqrt(found["var"]), {"parameters": np.ravel(model.get_cov_pars()).round(5).tolist()}


SETS = "elevators,pol,protein,precip"
METHODS = {
    "default": default,
    "near": near,
    "neighbours": neighbours,
    "all rows": all_rows,
    "published": published,
    "GPBoost": gpboost,
}


def measure(name: str, method: str) -> dict:
    data = dataset(name)
    began, before = time.perf_counter(), time.process_time()
    mean, std, more = METHODS[method](name, data)
    seconds = time.perf_counter() - began
    line = {"set": name, "method": method, "seconds": round(seconds, 1)}
    line["processor seconds"] = round(time.process_time() - before, 1)
    line["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    line["rmse"] = round(dg.metrics.rmse(data.y_test, mean), 4)
    line["nll"] = round(dg.metrics.nll(data.y_test, mean, std), 4)
    line["coverage 90 %"] = round(dg.metrics.coverage(data.y_test, mean, std, 0.9), 3)
    return {**line, **more}


if __name__ == "__main__":
    run_cells("learning", __file__, __doc__, measure, SETS, list(METHODS), 1200.0, {("precip", "published")})
