"""Time to a posterior mean (and 64 samples) whose test RMSE is within 1 % of the exact one: ours and peers.

    DUALGP_DATA=... python benchmarks/peers.py [--sets pol,elevators,bike,protein,keggdirected] [--limit 600]

Split 0, published hyperparameters for everyone, nothing learned. Every cell is a process of its own, from imported
libraries to the predictions at the test points, compilation included; "again" is the same once more in that process.

- GPyTorch: conjugate gradients, pivoted Cholesky of rank 100, tolerance 1e-2, mean only, float32.
- scikit-learn: GaussianProcessRegressor, mean only: exact, so its RMSE is the reference where it can run.
- GPBoost: Vecchia's approximation with 20 neighbours, mean only.
"""

import resource
import time
from collections.abc import Callable

import jax
import numpy as np

import dualgp as dg
from record import load_uci, published_model, run_cells

Predict = Callable[[], np.ndarray]


def ours(data, model, num_samples: int) -> Predict:
    def predict() -> np.ndarray:
        posterior = model.condition(data.x, data.y, num_samples=num_samples, key=jax.random.key(0))
        return posterior.predict(data.x_test)[0] if num_samples else posterior.mean(data.x_test)

    return predict


def gpytorch(data, model) -> Predict:
    import gpytorch
    import torch

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            matern = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(matern)
            matern.lengthscale = torch.tensor(np.asarray(model.kernel.lengthscale, np.float32))
            self.covar_module.outputscale = float(model.kernel.variance)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, y, points = (torch.tensor(np.asarray(array, np.float32)) for array in (data.x, data.y, data.x_test))

    def predict() -> np.ndarray:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-8))
        likelihood.noise = float(model.noise)
        exact = Exact(x, y, likelihood)
        exact.eval()
        settings = gpytorch.settings
        with (
            torch.no_grad(),
            settings.max_cholesky_size(1),
            settings.max_preconditioner_size(100),
            settings.eval_cg_tolerance(1e-2),
            settings.max_cg_iterations(1000),
            settings.skip_posterior_variances(True),
        ):
            return exact(points).mean.numpy()

    return predict


def sklearn(data, model) -> Predict:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    kernel = ConstantKernel(float(model.kernel.variance)) * Matern(np.asarray(model.kernel.lengthscale), nu=1.5)
    regressor = GaussianProcessRegressor(kernel, alpha=float(model.noise), optimizer=None, copy_X_train=False)
    return lambda: regressor.fit(data.x, data.y).predict(data.x_test)


def gpboost(data, model) -> Predict:
    import gpboost

    def predict() -> np.ndarray:
        vecchia = gpboost.GPModel(
            gp_coords=data.x,
            cov_function="matern_ard",
            cov_fct_shape=1.5,
            gp_approx="vecchia",
            num_neighbors=20,
            likelihood="gaussian",
        )
        parameters = np.concatenate([[model.noise], [model.kernel.variance], model.kernel.lengthscale])
        return vecchia.predict(y=data.y, gp_coords_pred=data.x_test, cov_pars=parameters, predict_var=False)["mu"]

    return predict


SETS = "pol,elevators,bike,protein,keggdirected"
METHODS = {
    "dualgp, mean": lambda data, model: ours(data, model, 0),
    "dualgp, mean + 64 samples": lambda data, model: ours(data, model, 64),
    "GPyTorch": gpytorch,
    "scikit-learn": sklearn,
    "GPBoost": gpboost,
}
TOO_LARGE = {("protein", "scikit-learn"), ("keggdirected", "scikit-learn")}  # 14 GB, and as much again for the factor


def measure(name: str, method: str) -> dict:
    data, model = load_uci(name), published_model(name)
    line: dict = {"set": name, "method": method}
    predict = METHODS[method](data, model)
    for label in ("seconds", "again"):
        began = time.perf_counter()
        mean = predict()
        line[label] = round(time.perf_counter() - began, 1)
    line["rmse"] = round(float(dg.metrics.rmse(data.y_test, mean)), 5)
    line["gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)
    return line


if __name__ == "__main__":
    run_cells("peers", __file__, __doc__, measure, SETS, list(METHODS), 600.0, TOO_LARGE)
