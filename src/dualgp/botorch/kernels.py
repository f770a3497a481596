"""Kernels and random features at torch tensors: the same formulas, with torch's gradients.

`@kernel_block.register(Own)` adds a kernel of your own, and `@feature_matrix.register` its features.
"""

import math
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import threshold

from dualgp.kernels import RBF, Features, Kernel, Matern12, Matern32, Matern52, Product, Scale, Sum
from dualgp.kernels.features import FourierFeatures, SumFeatures
from dualgp.kernels.stationary import Stationary

SMALLEST_SQUARE = 1e-30  # replaces 0, so that its root is a divisor


@singledispatch
def kernel_block(kernel: Kernel, x1: Float[Tensor, "n1 d"], x2: Float[Tensor, "n2 d"]) -> Float[Tensor, "n1 n2"]:
    """The matrix block with entries k(x1[i], x2[j]), in the dtype of the tensors."""
    raise TypeError(
        f"{type(kernel).__name__} has no formula in torch. There are RBF, Matern12, Matern32 and Matern52, and sums, "
        "products and multiples of them; add your own with @dualgp.botorch.kernel_block.register(YourKernel)."
    )


@kernel_block.register
def _(kernel: Sum, x1: Tensor, x2: Tensor) -> Tensor:
    return kernel_block(kernel.left, x1, x2) + kernel_block(kernel.right, x1, x2)


@kernel_block.register
def _(kernel: Product, x1: Tensor, x2: Tensor) -> Tensor:
    return kernel_block(kernel.left, x1, x2) * kernel_block(kernel.right, x1, x2)


@kernel_block.register
def _(kernel: Scale, x1: Tensor, x2: Tensor) -> Tensor:
    return as_tensor(kernel.scale, x1) * kernel_block(kernel.kernel, x1, x2)


@kernel_block.register
def _(kernel: Stationary, x1: Tensor, x2: Tensor) -> Tensor:
    if type(kernel) not in PROFILES:
        kernel_block.dispatch(Kernel)(kernel, x1, x2)  # the error that says what to do
    stretch, profile = PROFILES[type(kernel)]
    scale = math.sqrt(stretch) / as_tensor(kernel.lengthscales, x1)
    return profile(_squared_distances(scale * x1, scale * x2), math.log(float(kernel.variance)))


def _rbf(square: Tensor, log_variance: float) -> Tensor:
    return torch.exp(log_variance - square)


def _matern12(square: Tensor, log_variance: float) -> Tensor:
    return torch.exp(log_variance - square.sqrt())


def _matern32(square: Tensor, log_variance: float) -> Tensor:
    r = square.sqrt()
    return (1.0 + r) * torch.exp(log_variance - r)


def _matern52(square: Tensor, log_variance: float) -> Tensor:
    r = square.sqrt()
    return torch.add(1.0 + r, square, alpha=1.0 / 3.0) * torch.exp(log_variance - r)


# A factor of the squared scaled distance, and the kernel as a function of the product: it saves a pass over the tile.
PROFILES = {RBF: (0.5, _rbf), Matern12: (1.0, _matern12), Matern32: (3.0, _matern32), Matern52: (5.0, _matern52)}


@singledispatch
def feature_matrix(features: Features, x: Float[Tensor, "m d"]) -> Float[Tensor, "m num"]:
    """phi(x), in the dtype of the tensor."""
    raise TypeError(f"{type(features).__name__} have no formula in torch. There are those of the stationary kernels.")


@feature_matrix.register
def _(features: FourierFeatures, x: Tensor) -> Tensor:
    phase = x @ as_tensor(features.omega, x).T
    amplitude = as_tensor(np.sqrt(features.variance * features.weights), x)
    return torch.cat([amplitude * torch.sin(phase), amplitude * torch.cos(phase)], dim=-1)


@feature_matrix.register
def _(features: SumFeatures, x: Tensor) -> Tensor:
    return torch.cat([feature_matrix(part, x) for part in features.parts], dim=-1)


def as_tensor(array: Any, like: Tensor) -> Tensor:
    """A parameter, an array of NumPy or JAX, in the dtype and on the device of a tensor."""
    return torch.tensor(np.asarray(array), dtype=like.dtype, device=like.device)


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """||a_i - b_j||^2 by one matrix product of centred points, with their norms as two more columns."""
    centre = a.detach().mean(dim=0)
    a, b = a - centre, b - centre
    norms_a, norms_b = (points.square().sum(dim=1, keepdim=True) for points in (a, b))
    left = torch.cat([-2.0 * a, norms_a, torch.ones_like(norms_a)], dim=1)
    right = torch.cat([b, torch.ones_like(norms_b), norms_b], dim=1)
    # Below the rounding error of the formula points are equal: there the root's gradient is 0, not infinite.
    rounding = 8.0 * torch.finfo(a.dtype).eps * float(norms_a.detach().max() + norms_b.detach().max())
    return threshold(left @ right.T, rounding, SMALLEST_SQUARE)
