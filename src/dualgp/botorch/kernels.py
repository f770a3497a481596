"""Our kernels and random features at torch tensors: the same formulas, with torch's gradients.

Both are open: `@kernel_block.register(Own)` makes a kernel of your own known here.
"""

import math
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dualgp.kernels import RBF, Features, Kernel, Matern12, Matern32, Matern52, Product, Scale, Sum
from dualgp.kernels.features import FourierFeatures, SumFeatures
from dualgp.kernels.stationary import Stationary

_SMALLEST_SQUARE = 1e-30  # where the root is given the gradient 0 instead of infinity


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
    lengthscale = as_tensor(kernel.lengthscale, x1)
    return as_tensor(kernel.variance, x1) * _profile(kernel, _squared_distances(x1 / lengthscale, x2 / lengthscale))


@singledispatch
def _profile(kernel: Stationary, squared: Tensor) -> Tensor:
    """The kernel at unit variance, as a function of the squared scaled distance."""
    raise TypeError(
        f"{type(kernel).__name__} has no formula in torch: add it with @dualgp.botorch.kernel_block.register."
    )


@_profile.register
def _(kernel: RBF, squared: Tensor) -> Tensor:
    return torch.exp(-0.5 * squared)


@_profile.register
def _(kernel: Matern12, squared: Tensor) -> Tensor:
    return torch.exp(-_root(squared))


@_profile.register
def _(kernel: Matern32, squared: Tensor) -> Tensor:
    r = math.sqrt(3.0) * _root(squared)
    return (1.0 + r) * torch.exp(-r)


@_profile.register
def _(kernel: Matern52, squared: Tensor) -> Tensor:
    r = math.sqrt(5.0) * _root(squared)
    return (1.0 + r + (5.0 / 3.0) * squared) * torch.exp(-r)


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
    """||a_i - b_j||^2 by one matrix product on centred points; exactly zero for equal rows."""
    centre = a.detach().mean(dim=0)
    a, b = a - centre, b - centre
    norms = a.square().sum(dim=1, keepdim=True) + b.square().sum(dim=1)
    squared = torch.addmm(norms, a, b.T, alpha=-2.0)
    # Below the rounding error of the formula a distance is zero, as in kernels/distances.py.
    return torch.where(squared > 8.0 * torch.finfo(a.dtype).eps * norms, squared, 0.0)


def _root(squared: Tensor) -> Tensor:
    return squared.clamp_min(_SMALLEST_SQUARE).sqrt()
