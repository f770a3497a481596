"""DualGPModel: a fitted posterior for BoTorch's acquisition functions, and its functions as BoTorch's paths."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch
from botorch.models.model import Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.prior_samplers import draw_kernel_feature_paths
from botorch.sampling.pathwise.update_strategies import gaussian_update
from gpytorch.distributions import MultivariateNormal
from jaxtyping import Float
from torch import Size, Tensor

from dualgp._arrays import wide
from dualgp.botorch.kernels import kernel_block
from dualgp.botorch.near import NearField
from dualgp.botorch.paths import POINT_BLOCK, StreamedPaths, in_blocks, prior_values, recomputed, update_values
from dualgp.kernels.features import Features
from dualgp.operators.variance import combine_variances
from dualgp.posterior import Posterior
from dualgp.posterior.sampled import NO_SAMPLES

JITTER = 1e-8  # times k(x, x), added to the diagonal of covariances, which near points would make singular


class DualGPModel(Model):
    """A posterior of dualgp as a BoTorch model with one output: `DualGPModel(model.condition(x, y, key=key))`.

    It computes in the dtype of the points; BoTorch recommends double. Covariances are exact for the solver `Cholesky`
    (by default up to 4,096 points), otherwise averages over the posterior's s functions, of rank s.
    `draw_matheron_paths`, and with it `PathwiseThompsonSampling`, takes its functions from those of the posterior.
    """

    num_outputs = 1
    batch_shape = Size()
    data: Tensor
    weights: Tensor
    feature_weights: Tensor
    factor: Tensor

    def __init__(self, fitted: Any) -> None:
        Model.__init__(self)
        if not isinstance(fitted, Posterior):
            raise TypeError(
                f"DualGPModel takes a posterior such as GaussianProcess.condition's, got {type(fitted).__name__}."
            )
        if fitted.prior is None and not fitted.is_exact:
            raise ValueError(NO_SAMPLES)
        if fitted.num_outputs > 1:
            raise ValueError(
                f"The posterior has {fitted.num_outputs} outputs. Make a model of each, DualGPModel(post.output(0)) "
                "and so on, and a botorch.models.ModelList of them."
            )
        self.fitted = fitted
        self.kernel, self.mean, self.noise = fitted.model.kernel, float(fitted.model.mean), float(fitted.model.noise)
        with wide():
            self.jitter = JITTER * float(np.max(self.kernel.diagonal(fitted.x)))
        self.register_buffer("data", shared(fitted.far.x))
        self.register_buffer("weights", shared(fitted.weights))
        self.register_buffer("feature_weights", None if fitted.prior is None else shared(fitted.prior.weights))
        self.near = NearField(fitted) if fitted.neighbours else None
        self.register_buffer("factor", None if fitted.solution.factor is None else shared(fitted.solution.factor))

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint posterior of the function (or of observations) at `batch x q x d` points, with gradients in X."""
        if output_indices not in (None, [0], [-1]):
            raise ValueError(f"There is one output, got output_indices={output_indices}.")
        if not isinstance(X, Tensor) or X.ndim < 2:
            raise ValueError(f"X must be a tensor of shape (batch) x q x d, got {type(X).__name__} {np.shape(X)}.")
        if X.shape[-1] != self.data.shape[1]:
            raise ValueError(f"X has {X.shape[-1]} column(s), but the model was built on {self.data.shape[1]}.")
        moments = self._sampled if self.factor is None else self._exact
        mean, covariance = moments(X.reshape(-1, *X.shape[-2:]))
        mean, covariance = mean.reshape(X.shape[:-1]), covariance.reshape(*X.shape[:-1], X.shape[-2])
        noise = self._observation_noise(observation_noise, mean)
        joint = MultivariateNormal(mean, covariance + torch.diag_embed(self.jitter + noise))
        posterior = GPyTorchPosterior(joint)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def subset_output(self, idcs: list[int]) -> DualGPModel:
        if idcs not in ([0], [-1]):
            raise ValueError(f"There is one output, got idcs={idcs}.")
        return self

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> DualGPModel:
        """The model given further (n', d) points and (n', 1) values, solved starting from this one.

        `noise`: their variances (n', 1), by default the model's. One set of observations: no batches of fantasies,
        which would be a solve each.
        """
        noise = kwargs.pop("noise", None)
        if kwargs or X.ndim != 2 or Y.shape != (X.shape[0], 1):
            raise NotImplementedError(
                "DualGPModel conditions on (n', d) points and (n', 1) values, got shapes "
                f"{tuple(X.shape)} and {tuple(Y.shape)} and {sorted(kwargs)}. Acquisition functions that need batches "
                "of fantasies (knowledge gradient) are not supported."
            )
        x, y = (tensor.detach().cpu().numpy() for tensor in (X, Y[:, 0]))
        noise = None if noise is None else noise.detach().cpu().reshape(-1).numpy()
        return DualGPModel(self.fitted.update(x, y, noise=noise, key=torch_key()))

    def fantasize(self, X: Tensor, *args: Any, **kwargs: Any) -> DualGPModel:
        """Not supported: every fantasy would be a solve of its own."""
        raise NotImplementedError(
            "DualGPModel has no batches of fantasies, which knowledge gradient and its like need: each would be a "
            "solve. Use Thompson sampling, expected improvement or upper confidence bounds."
        )

    def _exact(self, x: Float[Tensor, "b q d"]) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b q q"]]:
        """mean + k(x, X) @ weights and k(x, x') - k(x, X) A^-1 k(X, x')."""
        size = max(1, POINT_BLOCK // x.shape[1])
        means, covariances = zip(*(recomputed(self._exact_block, block) for block in x.split(size)), strict=True)
        return torch.cat(means), torch.cat(covariances)

    def _exact_block(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cross = kernel_block(self.kernel, self.data.to(x), x.flatten(0, 1))
        mean = self.mean + cross.T @ self.weights[:, 0].to(x)
        half = torch.linalg.solve_triangular(self.factor.to(x), cross, upper=False)
        half = half.unflatten(1, x.shape[:2]).movedim(0, 1)  # (b, n, q)
        prior = torch.stack([kernel_block(self.kernel, points, points) for points in x])
        return mean.unflatten(0, x.shape[:2]), prior - half.mT @ half

    def _sampled(self, x: Float[Tensor, "b q d"]) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b q q"]]:
        """The mean, and the average of products of sample deviations phi(x) @ w - k(x, X) @ weights - u @ r_N.

        With a near field variances are those of `Posterior.std`; correlations are the samples'.
        """
        features, s = prior_features(self.fitted), self.feature_weights.shape[1]
        if x.shape[1] > s:
            raise ValueError(
                f"The joint posterior at {x.shape[1]} points takes more than the {s} functions that there are. "
                "Condition with num_samples=256, say, or with solver=Cholesky(), or use fewer points in a batch."
            )

        def block(x: Tensor) -> Tensor:
            update, prior = self._far(x), prior_values(features, self.feature_weights, x)
            if self.near is None:
                return torch.cat([self.mean + update[:, :1], prior - update[:, 1:]], dim=1)
            near = self.near(x)
            update = update + near.correction
            deviations = prior - update[:, 1:]
            variance = near.variance
            if not self.near.is_alone:
                variance = combine_variances(deviations, prior - near.alone[:, 1:], near.variance)
            size = (variance * s / deviations.square().sum(dim=1).clamp(min=torch.finfo(x.dtype).tiny)).sqrt()
            return torch.cat([self.mean + update[:, :1], size[:, None] * deviations], dim=1)

        values = in_blocks(block, x.flatten(0, 1)).unflatten(0, x.shape[:2])
        mean, deviations = values[..., 0], values[..., 1:]
        covariance = deviations @ deviations.mT / s
        # The sample covariance of s functions underestimates the variance of a point given q - 1 others. Smaller
        # correlations correct that: with 64 functions and 10 points it is 1.0 to 1.1 times the exact one, not 0.87.
        shrunk = s / (s + x.shape[1] - 1) * covariance
        return mean, shrunk + torch.diag_embed((covariance - shrunk).diagonal(dim1=-2, dim2=-1))

    def _far(self, x: Tensor) -> Tensor:
        """k(x, G) @ weights."""
        if not self.data.shape[0]:
            return torch.zeros(len(x), self.weights.shape[1], dtype=x.dtype, device=x.device)
        return update_values(self.kernel, self.data, self.weights, x)

    def _observation_noise(self, noise: bool | Tensor, mean: Tensor) -> Tensor:
        if isinstance(noise, Tensor):  # (batch) x q x 1, variances
            return noise.squeeze(-1).to(mean).expand_as(mean)
        return torch.full_like(mean, self.noise if noise else 0.0)


@DrawMatheronPaths.register(DualGPModel)
def _draw_matheron_paths(
    model: DualGPModel, *, sample_shape: Size, prior_sampler: Any, update_strategy: Any
) -> StreamedPaths:
    """Functions of the posterior, at random and without replacement: torch's generator decides which."""
    if prior_sampler is not draw_kernel_feature_paths or update_strategy is not gaussian_update:
        raise ValueError("A DualGPModel has its functions already: leave out prior_sampler and update_strategy.")
    there, wanted = model.fitted.num_samples, sample_shape.numel()
    if wanted > there:
        raise ValueError(
            f"{wanted} functions were asked for, and the posterior has {there}. Condition with num_samples={wanted} "
            "or more."
        )
    chosen = torch.randperm(there)[:wanted].to(model.weights.device)
    is_corrected = model.fitted.samples.near is not None  # if the far field has not converged
    near = NearField(model.fitted, lambda columns: columns[:, :1] - columns[:, 1 + chosen]) if is_corrected else None
    return StreamedPaths(
        model.kernel,
        model.data,
        model.weights[:, :1] - model.weights[:, 1 + chosen],
        sample_shape,
        mean=model.mean,
        features=prior_features(model.fitted),
        feature_weights=model.feature_weights[:, chosen],
        near=near,
    )


def prior_features(fitted: Posterior) -> Features:
    """The random features of the prior functions; an error without samples."""
    if fitted.prior is None:
        raise ValueError(NO_SAMPLES)
    return fitted.prior.features


def shared(array: Any) -> Tensor:
    """An array of NumPy or JAX as a tensor; writable arrays are not copied."""
    array = np.asarray(array)
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)


def torch_key() -> jax.Array:
    """A JAX key from torch's generator, so that `torch.manual_seed` makes results reproducible."""
    return jax.random.key(int(torch.randint(2**31 - 1, ())))
