"""Paths of an existing BoTorch model, with dualgp's random features for the prior and its solver for the update.

    draw_matheron_paths(model, sample_shape, prior_sampler=dual_prior, update_strategy=dual_update)

Each may be used without the other. BoTorch's own features are 1,024 plain draws. Where data are dense, they make the
posterior standard deviation wrong, even with an exact solve (kernels/frequencies.py says why).
"""

from __future__ import annotations

import warnings
from functools import reduce
from operator import add, mul
from typing import Any

import gpytorch.kernels as theirs
import numpy as np
import torch
from botorch.sampling.pathwise.paths import PathDict, SamplePath
from botorch.sampling.pathwise.utils import get_input_transform, get_train_inputs, get_train_targets
from gpytorch.likelihoods import Likelihood
from jaxtyping import Float
from torch import Size, Tensor

from dualgp.botorch.model import shared, torch_key
from dualgp.botorch.paths import StreamedPaths
from dualgp.kernels import RBF, Kernel
from dualgp.kernels.translate import MATERN, rescaled
from dualgp.operators import KernelOperator, policy
from dualgp.posterior.prior import prior_paths
from dualgp.solvers import Result, Solver, solve


class MeanPath(SamplePath):
    """The prior mean, a module of GPyTorch."""

    def __init__(self, mean_module: torch.nn.Module) -> None:
        SamplePath.__init__(self)
        self.mean_module = mean_module

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing to do: this is one model, not an ensemble of models."""

    def forward(self, x: Tensor) -> Tensor:
        return self.mean_module(x)


def dual_prior(model: Any, sample_shape: Size, num_features: int = 4096) -> PathDict:
    """Functions drawn from the prior of a BoTorch model, by stratified random features.

    Models as for `dual_update`; torch's generator decides which functions.
    """
    points = _points(model)
    d, kernel = points.shape[1], translated(model.covar_module, points.shape[1])
    prior = prior_paths(kernel, d, sample_shape.numel(), torch_key(), num_features)
    weights = shared(prior.weights).to(points.device)
    none = points.new_empty(0, d), points.new_empty(0, sample_shape.numel())
    draws = StreamedPaths(kernel, *none, sample_shape, features=prior.features, feature_weights=weights)
    return PathDict(
        {"mean": MeanPath(model.mean_module), "draws": draws}, sum, input_transform=get_input_transform(model)
    )


def dual_update(
    model: Any,
    sample_values: Float[Tensor, "*samples n"],
    target_values: Float[Tensor, " n"] | None = None,
    *,
    solver: Solver | str = "auto",
    memory: int | None = None,
) -> StreamedPaths:
    """The update k(x, X) @ (K + noise I)^-1 (y - f(X) - epsilon) for all prior paths f, solved together.

    `functools.partial(dual_update, solver=dg.Auto(tol=1e-3))` passes settings; see `dualgp.solve`. Exact up to 4,096
    points; in float32 from 10,000 points on. Supported are any mean module and transforms; kernels RBF and Matern,
    their sums, products and multiples; one noise for all points or one for each (`train_Yvar`); one output.
    Hyperparameters get no gradient.
    """
    points = _points(model)
    targets = get_train_targets(model, transformed=True) if target_values is None else target_values
    kernel, noise = translated(model.covar_module, points.shape[1]), _noise(model.likelihood)
    with torch.no_grad():
        epsilon = torch.as_tensor(np.sqrt(noise)).to(sample_values) * torch.randn_like(sample_values)
        errors = targets - sample_values - epsilon
        b = errors.reshape(-1, points.shape[0]).T.cpu().numpy()
    x = points.detach().cpu().numpy()
    operator = KernelOperator(kernel, x, noise, memory=memory, dtype=policy.choose_precision(x, len(x)))
    solution = solve(operator, b, solver, key=torch_key())
    if solution.result is Result.DIVERGED:
        warnings.warn(solution.message, RuntimeWarning, stacklevel=2)
    data, weights = (shared(array).to(points.device) for array in (operator.x, solution.weights))
    shape = sample_values.shape[:-1]
    return StreamedPaths(kernel, data, weights, shape, input_transform=get_input_transform(model))


def _points(model: Any) -> Float[Tensor, "n d"]:
    """The transformed training inputs of a model with one output."""
    (points,) = get_train_inputs(model, transformed=True)
    if points.ndim != 2 or model.num_outputs != 1:
        raise ValueError(f"One model with one output at a time, please: the training inputs are {tuple(points.shape)}.")
    return points


def translated(kernel: theirs.Kernel, d: int) -> Kernel:
    """A kernel of GPyTorch on d inputs, translated; inputs outside `active_dims` get an infinite lengthscale."""
    if kernel.batch_shape.numel() != 1 or len(kernel.batch_shape):
        raise ValueError(f"A batch of kernels {tuple(kernel.batch_shape)} is not translated: use one model at a time.")
    if isinstance(kernel, theirs.ScaleKernel):
        if kernel.active_dims is not None and kernel.base_kernel.active_dims is None:
            raise ValueError("active_dims of a ScaleKernel are not translated: give them to the kernel inside it.")
        return rescaled(translated(kernel.base_kernel, d), float(kernel.outputscale.detach()))
    if isinstance(kernel, (theirs.AdditiveKernel, theirs.ProductKernel)) and kernel.active_dims is None:
        parts = [translated(part, d) for part in kernel.kernels]
        return reduce(add if isinstance(kernel, theirs.AdditiveKernel) else mul, parts)
    if type(kernel) is theirs.RBFKernel:
        return RBF(_lengthscale(kernel, d))
    if type(kernel) is theirs.MaternKernel and kernel.nu in MATERN:
        return MATERN[kernel.nu](_lengthscale(kernel, d))
    raise ValueError(
        f"GPyTorch's {type(kernel).__name__} is not translated. There are RBFKernel and MaternKernel, and sums, "
        "products and ScaleKernels of them."
    )


def _lengthscale(kernel: theirs.Kernel, d: int) -> np.ndarray:
    lengthscale = kernel.lengthscale.detach().cpu().numpy().astype(np.float64).ravel()
    if kernel.active_dims is None:
        return lengthscale if lengthscale.size > 1 else lengthscale.reshape(())
    whole = np.full(d, np.inf)
    whole[kernel.active_dims.cpu().numpy()] = lengthscale
    return whole


def _noise(likelihood: Likelihood) -> Float[np.ndarray, "*n"]:
    """The variance of the noise: of every point, or one for each."""
    noise = likelihood.noise.detach().cpu().double().flatten().numpy()
    return noise.reshape(()) if len(noise) == 1 else noise
