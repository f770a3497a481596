"""Prior path + update path in torch, streamed over the data: only a tile of k(x, X) exists.

    f_i(x)  =  mean  +  phi(x) @ w_i  +  k(x, X) @ weights_i

The backward pass computes tiles again, so that gradients take no more memory than values. Points of shape (m, d) give
the values of all s functions, (m, s). Points of shape (s, m, d) give each function at its own points, (s, m), and cost
only those values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from botorch.sampling.pathwise.paths import SamplePath
from jaxtyping import Float
from torch import Size, Tensor
from torch.utils.checkpoint import checkpoint

from dualgp.botorch.kernels import feature_matrix, kernel_block
from dualgp.botorch.near import NearField
from dualgp.kernels import Features, Kernel

TILE_ENTRIES = 1 << 20  # entries of a tile of K: 8 MB in float64
SMALLEST_TILE = 256
POINT_BLOCK = 1024  # points whose random features are in memory together


def update_values(kernel: Kernel, data: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """k(x, X) @ weights: a sum over tiles of the data."""

    def term(x: Tensor, start: int) -> Tensor:
        part = slice(start, start + tile)
        return _combined(kernel_block(kernel, x.flatten(0, -2), data[part].to(x)), weights[part].to(x), x)

    tile = max(SMALLEST_TILE, TILE_ENTRIES // max(1, x.numel() // x.shape[-1]))
    return sum((recomputed(term, x, start) for start in range(tile, data.shape[0], tile)), recomputed(term, x, 0))


def prior_values(features: Features, weights: Tensor, x: Tensor) -> Tensor:
    """phi(x) @ w."""
    return recomputed(lambda x: _combined(feature_matrix(features, x.flatten(0, -2)), weights.to(x), x), x)


def _combined(basis: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """(m, rows) @ (rows, s) for shared points; one column for each function at its own points."""
    if x.ndim == 2:
        return basis @ weights
    return (basis.unflatten(0, x.shape[:2]) @ weights.T.unsqueeze(-1)).squeeze(-1)


def recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), computed again in the backward pass instead of keeping intermediate results."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def in_blocks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` at blocks of points, concatenated."""
    size = max(1, POINT_BLOCK // math.prod(x.shape[:-2]))
    return torch.cat([function(block) for block in x.split(size, dim=-2)], dim=x.ndim - 2)


class StreamedPaths(SamplePath):
    """Functions in torch: a tensor of shape `batch x m x d` gives values of shape `broadcast(batch, sample_shape) x m`.

    So points (m, d) are shared by all functions, and points `batch x s x 1 x d`, as in Thompson sampling, belong to one
    function each. Only the points have gradients. Without data it is the prior path.
    """

    data: Tensor
    weights: Tensor
    feature_weights: Tensor | None

    def __init__(
        self,
        kernel: Kernel,
        data: Float[Tensor, "n d"],
        weights: Float[Tensor, "n s"],
        sample_shape: Size,
        *,
        mean: float = 0.0,
        features: Features | None = None,
        feature_weights: Float[Tensor, "num s"] | None = None,
        input_transform: Any = None,
        near: NearField | None = None,
    ) -> None:
        SamplePath.__init__(self)
        self.near = near
        self.kernel, self.features, self.mean, self.sample_shape = kernel, features, mean, sample_shape
        self.register_buffer("data", data)
        self.register_buffer("weights", weights)
        self.register_buffer("feature_weights", feature_weights)
        self.input_transform = input_transform

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing to do: this is one model, not an ensemble of models."""

    def forward(self, x: Tensor) -> Tensor:
        batch, m, d = x.shape[:-2], x.shape[-2], x.shape[-1]
        if d != self.data.shape[1]:
            raise ValueError(f"x has {d} column(s), but the model was built on {self.data.shape[1]}.")
        shape = self._broadcast(batch)
        lead, slots = shape[: len(shape) - len(self.sample_shape)], shape[len(shape) - len(self.sample_shape) :]
        if self.sample_shape.numel() == 1:  # for points of any shape
            return self._values(x.reshape(-1, d)).reshape(*batch, m).expand(*shape, m)
        if batch.numel() == lead.numel():  # points and samples share no dimension
            values = self._values(x.reshape(-1, d)).reshape(*lead, m, -1)
            return values.transpose(-1, -2).reshape(*shape, m)
        own = x.expand(*shape, m, d).reshape(lead.numel(), slots.numel(), m, d).transpose(0, 1)
        index = torch.arange(self.sample_shape.numel()).reshape(self.sample_shape).expand(slots).flatten()
        values = self._values(own.reshape(slots.numel(), -1, d), index.to(x.device))
        return values.reshape(-1, lead.numel(), m).transpose(0, 1).reshape(*shape, m)

    def _values(self, x: Tensor, index: Tensor | None = None) -> Tensor:
        """(m, d) -> (m, s), or with the functions `index` (slots, m, d) -> (slots, m)."""
        weights: Tensor | None = self.weights
        feature_weights = self.feature_weights
        if index is not None and index.numel() != self.sample_shape.numel():
            weights, feature_weights = (w if w is None else w[:, index] for w in (weights, feature_weights))

        def block(x: Tensor) -> Tensor:
            values = torch.as_tensor(self.mean).to(x)
            if self.data.shape[0]:
                values = values + update_values(self.kernel, self.data, weights, x)
            if self.near is not None:
                values = values + (self.near(x).correction if x.ndim == 2 else self.near.of_each(x, functions))
            return values if self.features is None else values + prior_values(self.features, feature_weights, x)

        functions = torch.arange(self.sample_shape.numel()) if index is None else index
        return in_blocks(block, x)

    def _broadcast(self, batch: Size) -> Size:
        try:
            return torch.broadcast_shapes(batch, self.sample_shape)
        except RuntimeError:
            raise ValueError(
                f"Points of batch shape {tuple(batch)} do not fit {tuple(self.sample_shape)} functions. Pass (m, d) "
                "points for all functions, or a batch whose last dimensions are those of the functions."
            ) from None
