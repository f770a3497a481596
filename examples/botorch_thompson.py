"""BoTorch on 5,000 points: Thompson sampling, expected improvement, and the paths of a SingleTaskGP."""

import jax
import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import MaternKernel

import dualgp as dg
from dualgp.botorch import DualGPModel, dual_prior, dual_update

N, BATCH, NOISE = 5000, 4, 0.04
CUBE = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.double)


def objective(x: np.ndarray) -> np.ndarray:
    """What is to be maximised: about 1.10 near (0.56, 0.3, 0.5)."""
    return np.exp(-4 * np.sum((x - np.array([0.7, 0.3, 0.5])) ** 2, axis=1)) + 0.2 * np.sin(9 * x[:, 0]) ** 2


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(N, 3))
    y = objective(x) + NOISE**0.5 * rng.normal(size=N)
    torch.manual_seed(0)

    # A posterior of ours as a BoTorch model: acquisition functions and their optimisers work as they are.
    gp = dg.GaussianProcess(dg.Matern52([0.4, 0.6, 0.6]), noise=NOISE)
    model = DualGPModel(gp.condition(x, y, num_samples=64, key=jax.random.key(0)))
    thompson = PathwiseThompsonSampling(model)
    batch, _ = optimize_acqf(thompson, CUBE, q=BATCH, num_restarts=2, raw_samples=32)
    there = objective(batch.numpy())
    print(
        f"{BATCH} Thompson samples: the objective there is {there.mean():.3f} on average, {there.min():.3f} at least."
    )

    best = model.posterior(torch.tensor(x[:500, None])).mean.max()
    point, _ = optimize_acqf(LogExpectedImprovement(model, best), CUBE, q=1, num_restarts=2, raw_samples=64)
    print(f"Expected improvement looks at {point.numpy().round(2)[0]}: {objective(point.numpy())[0]:.3f} there.")

    # Or a model of BoTorch's, with our features and our solver for its paths: one solve for all of them.
    kernel = MaternKernel(nu=2.5, ard_num_dims=3)
    theirs = SingleTaskGP(torch.tensor(x), torch.tensor(y[:, None]), covar_module=kernel, outcome_transform=None)
    kernel.lengthscale, theirs.likelihood.noise = [0.4, 0.6, 0.6], NOISE
    paths = draw_matheron_paths(theirs, torch.Size([64]), prior_sampler=dual_prior, update_strategy=dual_update)
    values = paths(batch).detach()  # (64, BATCH)
    ours = model.posterior(batch[:, None])
    print(f"64 paths of a SingleTaskGP there: {values.mean(0).numpy().round(3)} +- {values.std(0).numpy().round(3)}")
    print(f"By our model: {ours.mean.numpy().ravel().round(3)} +- {ours.variance.sqrt().numpy().ravel().round(3)}")


if __name__ == "__main__":
    main()
