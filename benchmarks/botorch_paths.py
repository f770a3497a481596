"""64 posterior paths in BoTorch: drawn, and evaluated with gradients at 1,000 points. Its own way and ours.

    python benchmarks/botorch_paths.py [--sets 8000,50000] [--limit 1800]

Six inputs, Matern 5/2 with a lengthscale each, noise variance 1e-3, data drawn from that prior; nothing is learned.
Every cell is a process of its own that may map 16 GB; importing and making the data are not timed, compilation is.

- BoTorch: draw_matheron_paths as it is. Its update makes a copy of the Cholesky factor for every path.
- BoTorch, stacked: the same prior paths, with one factorisation and one solve for all right-hand sides. Float64, exact.
- dual_update: the same prior paths, our solver with its default tolerance (relative residual 1e-2).
- dual_prior, dual_update: our prior paths as well.
- DualGPModel: a posterior of ours, the solve for its mean included.
- DualGPModel, 1,000 paths: only its memory counts, so the solver is stopped almost at once.

"mean error" and "std ratio": mean and standard deviation of the 64 paths against the exact posterior's, the error in
units of its standard deviation, root mean square over the points; 64 exact paths have 0.125 and 1. "score": error of
the mean against the true function in units of the paths' standard deviation; 64 exact paths have 1.02.
"""

import resource
import time
from collections.abc import Callable

import jax
import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.sampling.pathwise.features import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean

import dualgp as dg
from dualgp.botorch import DualGPModel, dual_prior, dual_update
from record import run_cells

LENGTHSCALE, NOISE, D, PATHS, POINTS = np.linspace(0.4, 1.4, 6), 1e-3, 6, 64, 1000
MODEL = dg.GaussianProcess(dg.Matern52(LENGTHSCALE), noise=NOISE)
Paths = Callable[[torch.Tensor], torch.Tensor]


def make(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, x_test = rng.uniform(size=(n, D)), rng.uniform(size=(POINTS, D))
    truth = MODEL.sample_prior(D, 1, key=jax.random.key(0), num_features=16_384)
    y = np.concatenate([truth(part.astype(np.float32))[0] for part in np.array_split(x, max(1, n // 5000))])
    return x, y + np.sqrt(NOISE) * rng.normal(size=n), x_test, truth(x_test.astype(np.float32))[0]


def single_task(x: np.ndarray, y: np.ndarray) -> SingleTaskGP:
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=D)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor(LENGTHSCALE), 1.0
    arrays = torch.tensor(x), torch.tensor(y[:, None])
    model = SingleTaskGP(*arrays, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    model.likelihood.noise = NOISE
    return model.requires_grad_(False).eval()


def stacked_update(model: SingleTaskGP, sample_values: torch.Tensor, target_values: torch.Tensor) -> Paths:
    """(K + noise I)^-1 (y - f(X) - epsilon), with one factor for all paths."""
    points, n = model.train_inputs[0], target_values.shape[-1]
    errors = target_values - sample_values - np.sqrt(NOISE) * torch.randn_like(sample_values)
    matrix = model.covar_module(points).to_dense()
    matrix.diagonal().add_(NOISE)
    factor = torch.linalg.cholesky(matrix, out=matrix)
    weight = torch.cholesky_solve(errors.reshape(-1, n).T.contiguous(), factor).T.contiguous()
    return GeneralizedLinearPath(KernelEvaluationMap(model.covar_module, points), weight)


def in_botorch(**settings) -> Callable[..., Paths]:
    def draw(x: np.ndarray, y: np.ndarray) -> Paths:
        with torch.no_grad():
            return draw_matheron_paths(single_task(x, y), torch.Size([PATHS]), **settings)

    return draw


def ours(num: int = PATHS, **budget) -> Callable[..., Paths]:
    def draw(x: np.ndarray, y: np.ndarray) -> Paths:
        posterior = MODEL.condition(x, y, num_samples=num, key=jax.random.key(1), **budget)
        return draw_matheron_paths(DualGPModel(posterior), torch.Size([num]))

    return draw


METHODS: dict[str, Callable[..., Paths]] = {
    "BoTorch": in_botorch(),
    "BoTorch, stacked": in_botorch(update_strategy=stacked_update),
    "dual_update": in_botorch(update_strategy=dual_update),
    "dual_prior, dual_update": in_botorch(prior_sampler=dual_prior, update_strategy=dual_update),
    "DualGPModel": ours(),
    "DualGPModel, 1,000 paths": ours(1000, max_passes=0.02),
}
LEFT_OUT = {
    ("50000", "BoTorch, stacked"),  # the matrix alone takes 20 GB
    ("8000", "DualGPModel, 1,000 paths"),
}


def measure(n: str, method: str) -> dict:
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    torch.manual_seed(0)
    x, y, x_test, truth = make(int(n))
    line: dict = {"set": n, "method": method, "gigabytes before": gigabytes()}
    points = torch.tensor(x_test, requires_grad=True)
    try:
        began, began_cpu = time.perf_counter(), time.process_time()
        paths = METHODS[method](x, y)
        drawn, drawn_cpu = time.perf_counter(), time.process_time()
        values = paths(points)
        torch.autograd.grad(values.sum(), points)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error):
            raise
        wanted = str(error).partition("you tried to ")[2].partition(".")[0]
        return {**line, "failed": f"out of memory ({wanted})"}
    line |= {"draw": drawn - began, "evaluate": time.perf_counter() - drawn}
    line |= {"draw cpu": drawn_cpu - began_cpu, "evaluate cpu": time.process_time() - drawn_cpu}
    line |= {"gigabytes": gigabytes()}
    if "1,000" not in method:
        line |= quality(values.detach().numpy(), truth, x, y, x_test)
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in line.items()}


def quality(values: np.ndarray, truth: np.ndarray, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> dict:
    mean, std = values.mean(axis=0), values.std(axis=0, ddof=1)
    line = {"score": rms((truth - mean) / std)}
    if x.shape[0] <= 10_000:
        exact = MODEL.condition(x, y, solver=dg.Cholesky(), num_samples=0, key=jax.random.key(0))
        exact_mean, exact_std = exact.predict(x_test)
        line |= {"mean error": rms((mean - exact_mean) / exact_std), "std ratio": rms(std / exact_std)}
    return line


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2)))


def gigabytes() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)


if __name__ == "__main__":
    run_cells("botorch_paths", __file__, __doc__, measure, "8000,50000", list(METHODS), 1800.0, LEFT_OUT)
