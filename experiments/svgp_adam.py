"""SVGP as the paper has it, by GPyTorch: inducing points and the variational distribution moved by Adam.

Beside `svgp.py`, which has the best distribution for points that stay at k-means centres. Hyperparameters are given, as
for every other method.
"""

import gpytorch
import numpy as np
import torch

import dualgp as dg
import svgp

BATCH, LEARNING_RATE = 512, 0.01


class _Model(gpytorch.models.ApproximateGP):
    def __init__(self, model: dg.GaussianProcess, points: torch.Tensor) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(1.5, ard_num_dims=points.shape[1]))
        self.mean.constant = float(model.mean)
        self.kernel.outputscale = float(model.kernel.variance)
        lengthscale = np.broadcast_to(np.asarray(model.kernel.lengthscale), points.shape[1])
        self.kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float32)
        for part in (self.mean, self.kernel):
            part.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def predict(
    model: dg.GaussianProcess, data, num_points: int, num_steps: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of test observations after so many steps."""
    if not isinstance(model.kernel, dg.Matern32):
        raise TypeError(f"This SVGP is for Matern32, got {type(model.kernel).__name__}.")
    torch.manual_seed(seed)
    points = svgp.inducing_points(model.kernel, data.x, num_points, seed)
    x, y, x_test = (torch.tensor(np.asarray(array), dtype=torch.float32) for array in (data.x, data.y, data.x_test))
    approximate = _Model(model, torch.tensor(points, dtype=torch.float32))
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
    likelihood.noise = float(model.noise)
    bound = gpytorch.mlls.VariationalELBO(likelihood, approximate, num_data=len(y))
    optimiser = torch.optim.Adam(approximate.variational_parameters(), lr=LEARNING_RATE)
    optimiser.add_param_group({"params": [approximate.variational_strategy.inducing_points]})
    for _ in range(num_steps):
        index = torch.randint(len(y), (BATCH,))
        optimiser.zero_grad()
        loss = -bound(approximate(x[index]), y[index])
        loss.backward()
        optimiser.step()
    approximate.eval()
    with torch.no_grad():
        found = [approximate(part) for part in torch.split(x_test, 1024)]
        mean = torch.cat([part.mean for part in found]).double().numpy()
        variance = torch.cat([part.variance for part in found]).double().numpy()
    return mean, np.sqrt(variance + float(model.noise))
