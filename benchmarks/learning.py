"""From nothing to predictions: hyperparameters learned, then mean and error bars at the test points.

    DUALGP_DATA=... python benchmarks/learning.py [--sets elevators,pol,...] [--methods default;near;...] [--limit 1200]

One lengthscale for each input. Every cell is a process of its own, compilation included; seconds are those of the clock
and of the processors.

- default: `dualgp.learn(None, ...)`, which chooses the kernel, then `condition` if that is left to do.
- neighbours, all rows: Matern-3/2 by `Neighbours()`, and by `FullData()` from there.
- near: as neighbours, with the kernel chosen, and predictions from the 200 nearest rows alone.
- published: no learning, the hyperparameters published with the paper.
- learning: `dualgp.learn(None, ...)` alone, its seconds and memory, scored on the 200 nearest rows.
- GPBoost, GPBoost VIF: its Vecchia approximation with 20 neighbours, and its inducing points besides.
- LightGBM: 500 trees, without error bars.
- scikit-learn: the best of five starts of its GaussianProcessRegressor with one lengthscale for each input.

Sets: UCI splits, large sets with a random tenth held out (20,000 rows of it scored), `synthetic-SEED` (7,000 rows of
32 inputs of which four matter, noise 0.04; the line has the noise that was found and the ratio of the shortest
irrelevant lengthscale to the longest relevant one) and `small` (1,000 rows of 5 inputs; the line has the log
likelihood).
"""

import resource
import time
from functools import partial

import jax
import numpy as np

import dualgp as dg
from record import LOADERS, Dataset, load_large, load_uci, published_model, run_cells

KEY, SCORED = jax.random.key(0), 20_000


def dataset(name: str) -> Dataset:
    """A UCI split, large data with a random tenth held out, or made-up data."""
    kind, _, seed = name.partition("-")
    if kind in ("synthetic", "small"):
        return made_up(*((7000, 32, int(seed)) if kind == "synthetic" else (1000, 5, 0)))
    return load_large(name) if name in LOADERS else load_uci(name)


def made_up(n: int, d: int, seed: int) -> Dataset:
    """A function of four inputs, with noise of variance 0.04."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n + 2000, d))
    f = np.sin(3.0 * x[:, 0]) + 2.0 * x[:, 1] ** 2 + np.cos(2.0 * x[:, 2] + x[:, 3])
    y = f + 0.2 * rng.standard_normal(len(f))
    return Dataset(x[:n], y[:n], x[n:], y[n:])


def start(d: int) -> dg.GaussianProcess:
    return dg.GaussianProcess(dg.Matern32(np.full(d, d**0.5)), noise=0.1)


def default(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    learned = dg.learn(None, data.x, data.y, key=KEY)
    more = {"kernels": {name: round(lost, 4) for name, lost in learned.kernels.items()}}
    more |= about(name, learned.model, data)
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


def learning(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    began, before = time.perf_counter(), time.process_time()
    learned = dg.learn(None, data.x, data.y, key=KEY, method=dg.learning.Neighbours())
    more = {"learning": round(time.perf_counter() - began, 1)}
    more["learning, processor"] = round(time.process_time() - before, 1)
    more["learning, megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    more["message"] = learned.message
    posterior = learned.model.condition(data.x, data.y, num_far=0, neighbours=200, num_samples=0, key=KEY)
    mean, std = posterior.predict(data.x_test, noise=True)
    low, high = posterior.quantile(data.x_test, [0.05, 0.95]).T
    more["coverage, calibrated"] = round(float(np.mean((data.y_test >= low) & (data.y_test <= high))), 3)
    return mean, std, more | about(name, learned.model, data)


def about(name: str, model: dg.GaussianProcess, data: Dataset) -> dict:
    """What is known of made-up data."""
    if name == "small":
        return {"log likelihood": round(dg.learning.log_likelihood(model, data.x, data.y), 2)}
    if not name.startswith("synthetic"):
        return {}
    scales = np.asarray(model.kernel.lengthscale)
    ratio = float(scales[4:].min() / scales[:4].max())
    return {"noise": round(float(model.noise), 4), "ratio": round(ratio, 1)}


def neighbours(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    model = start(data.x.shape[1]).learn(data.x, data.y, key=KEY, method=dg.learning.Neighbours())
    return condition(model, data)


def published(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    return condition(published_model(name), data)


def condition(model: dg.GaussianProcess, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    posterior = model.condition(data.x, data.y, key=KEY)
    more = {"passes": round(posterior.solution.passes, 1), "noise": float(model.noise)}
    low, high = posterior.quantile(data.x_test, [0.05, 0.95]).T
    more["coverage, calibrated"] = round(float(np.mean((data.y_test >= low) & (data.y_test <= high))), 3)
    return *posterior.predict(data.x_test, noise=True), more


def scikit_learn(name: str, data: Dataset) -> tuple[np.ndarray, np.ndarray, dict]:
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    kernel = kernels.ConstantKernel() * kernels.Matern(np.ones(data.x.shape[1]), nu=1.5) + kernels.WhiteKernel()
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=4, random_state=0).fit(data.x, data.y)
    more = {"log likelihood": round(float(model.log_marginal_likelihood_value_), 2)}
    return *model.predict(data.x_test, return_std=True), more


def lightgbm(name: str, data: Dataset) -> tuple[np.ndarray, None, dict]:
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(n_estimators=500, verbose=-1).fit(data.x, data.y)
    return np.asarray(model.predict(data.x_test)), None, {}


def gpboost(name: str, data: Dataset, approximation: str = "vecchia") -> tuple[np.ndarray, np.ndarray, dict]:
    import gpboost

    model = gpboost.GPModel(
        gp_coords=data.x.astype(np.float64),
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx=approximation,
        num_neighbors=20,
        likelihood="gaussian",
    )
    model.fit(y=data.y.astype(np.float64))
    found = model.predict(gp_coords_pred=data.x_test.astype(np.float64), predict_var=True, predict_response=True)
    return found["mu"], np.sqrt(found["var"]), {"parameters": np.ravel(model.get_cov_pars()).round(5).tolist()}


SETS = "elevators,pol,protein,precip,houseelectric,small," + ",".join(f"synthetic-{seed}" for seed in range(5))
METHODS = {
    "default": default,
    "near": near,
    "neighbours": neighbours,
    "all rows": all_rows,
    "published": published,
    "learning": learning,
    "GPBoost": gpboost,
    "GPBoost VIF": partial(gpboost, approximation="vif"),
    "LightGBM": lightgbm,
    "scikit-learn": scikit_learn,
}


LARGE = ("houseelectric", "precip")
LEFT_OUT = {(name, "published") for name in SETS.split(",") if name in LARGE or name.startswith("s")}
LEFT_OUT |= {(name, "scikit-learn") for name in SETS.split(",") if name != "small"}
LEFT_OUT |= {("houseelectric", method) for method in ("all rows", "GPBoost", "GPBoost VIF")}


def measure(name: str, method: str) -> dict:
    data = dataset(name)
    some = np.random.default_rng(0).permutation(len(data.y_test))[:SCORED]
    data = data._replace(x_test=data.x_test[some], y_test=data.y_test[some])
    began, before = time.perf_counter(), time.process_time()
    mean, std, more = METHODS[method](name, data)
    seconds = time.perf_counter() - began
    line = {"set": name, "method": method, "seconds": round(seconds, 1)}
    line["processor seconds"] = round(time.process_time() - before, 1)
    line["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    line["rmse"] = round(dg.metrics.rmse(data.y_test, mean), 4)
    if std is not None:
        line["nll"] = round(dg.metrics.nll(data.y_test, mean, std), 4)
        line["coverage 90 %"] = round(dg.metrics.coverage(data.y_test, mean, std, 0.9), 3)
    return {**line, **more}


if __name__ == "__main__":
    run_cells("learning", __file__, __doc__, measure, SETS, list(METHODS), 1200.0, LEFT_OUT)
