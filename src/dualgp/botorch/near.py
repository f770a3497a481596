"""The near field in torch: predictions from the nearest rows, in double precision, with torch's gradients.

The posterior's tree finds the neighbours; the choice has no derivative.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dualgp.botorch.kernels import kernel_block
from dualgp.posterior import Posterior

ROUNDING = 4.0  # times eps and the trace: the rounding error of the diagonal
POINTS_AT_ONCE = 32  # points whose neighbours share one block of the kernel


class NearValues(NamedTuple):
    """Values at m points: u @ r_N and u @ targets_N for every column, and the variance given the neighbours alone."""

    correction: Tensor
    alone: Tensor
    variance: Tensor


class NearField:
    """`dualgp.posterior.near.NearField` of a posterior, or of some combinations of its columns, at tensors."""

    def __init__(self, fitted: Posterior, combine: Any = None) -> None:
        near: Any = fitted.predictor.near
        self.fitted, self.num, self.search = fitted, near.num, near.search
        columns = (near.targets if near.residuals is None else near.residuals, near.targets)
        self.residuals, self.targets = (torch.tensor(np.asarray(array, np.float64)) for array in columns)
        if combine is not None:
            self.residuals, self.targets = combine(self.residuals), combine(self.targets)
        self.is_alone = near.residuals is None

    def __call__(self, x: Tensor) -> NearValues:
        """Values at (m, d) points, in groups that share a block of the kernel."""
        parts = [self._values(part) for part in x.double().split(POINTS_AT_ONCE)]
        return NearValues(*(torch.cat(arrays).to(x) for arrays in zip(*parts, strict=True)))

    def of_each(self, x: Tensor, index: Tensor) -> Tensor:
        """u @ r_N of the functions `index` at points of their own, (slots, m, d) -> (slots, m)."""
        return torch.stack([self(points).correction[:, i] for points, i in zip(x, index, strict=True)])

    def _values(self, x: Tensor) -> NearValues:
        near = torch.from_numpy(self.search.query(x.detach().cpu().numpy(), self.num).astype(np.int64))
        rows, place = near.unique(return_inverse=True)
        kernel = self.fitted.model.kernel
        noise = torch.tensor(np.asarray(self.fitted.row_noise.diagonal(near.numpy(), np.float64)))
        data = torch.tensor(np.asarray(self.search.read(rows.numpy()[:, None])[:, 0], np.float64))
        with torch.no_grad():
            matrix = kernel_block(kernel, data, data)[place[:, :, None], place[:, None, :]]
            trace = matrix.diagonal(dim1=1, dim2=2).sum(dim=1)
            shift = noise + ROUNDING * torch.finfo(matrix.dtype).eps * trace[:, None]
            factor = torch.linalg.cholesky(matrix + torch.diag_embed(shift))
        across = kernel_block(kernel, data, x).T.gather(1, place)
        weights = torch.cholesky_solve(across[..., None], factor)[..., 0]
        own = torch.cat([kernel_block(kernel, point[None], point[None])[0] for point in x])
        correction, alone = (
            torch.einsum("mk,mks->ms", weights, array[near]) for array in (self.residuals, self.targets)
        )
        return NearValues(correction, alone, (own - (across * weights).sum(dim=1)).clamp(min=0.0))
