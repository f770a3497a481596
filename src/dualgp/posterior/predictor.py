"""Mean and deviations at a block of points: the sum of prior, far field and near field is formed here only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from dualgp._arrays import is_traced
from dualgp._checks import check_values
from dualgp._types import AnyArray
from dualgp.operators.cross import CrossProduct, evaluate_blocks
from dualgp.operators.variance import combine_variances
from dualgp.posterior.near import NearField
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.prior import PriorPaths


class Block(NamedTuple):
    """Means, deviations and variance at some points."""

    mean: Float[AnyArray, "m ..."]
    deviations: Float[AnyArray, "m s"]
    variance: Float[AnyArray, " m"]


class Predictor(eqx.Module):
    """The posterior means of k outputs and the deviations of s sample functions from them:

        mean(x)        =  constant  +  k(x, X) @ weights[:, :k]     +  u @ r_N[:, :k]
        deviations(x)  =  phi(x) @ w  -  k(x, X) @ weights[:, k:]   -  u @ r_N[:, k:]

    The last term is the near field, if there is one. A sample function is the mean plus a deviation.
    """

    constant: AnyArray
    prior: PriorPaths | None
    far: CrossProduct
    near: NearField | None = None
    num_outputs: int = eqx.field(static=True, default=1)

    def blocks(self, x: Any) -> Iterator[Block]:
        """Mean, deviations and variance, block by block of points; traced points are a single block.

        The variance is the mean squared deviation. With a near field, the variance given the neighbours alone is known
        in closed form and serves as a control variate.
        """
        functions = (self.far,) if self.prior is None else (self.far, self.prior)
        first, k = 0, self.num_outputs
        shaped = (lambda means: means[:, 0]) if k == 1 else (lambda means: means)
        for points, (far, *prior) in evaluate_blocks(functions, x, self.far.x, self.far.kernel):
            mean = shaped(self.constant.astype(far.dtype) + far[:, :k])
            deviations = prior[0] - far[:, k:] if prior else far[:, k:]
            for values in (mean, deviations):
                check_values(values, x, first)
            first += len(mean)
            if self.near is None:
                yield Block(mean, deviations, (deviations**2).sum(axis=1) / max(deviations.shape[1], 1))
                continue
            near = self.near(points)
            correction, alone = (array.astype(far.dtype) for array in (near.correction, near.alone))
            variance = near.variance.astype(far.dtype)
            if prior:
                deviations = deviations - correction[:, k:]
                if self.near.residuals is not None:
                    variance = combine_variances(deviations, prior[0] - alone[:, k:], variance)
            yield Block(mean + shaped(correction[:, :k]), deviations, variance)

    def mean(self, x: Any) -> Float[AnyArray, "m ..."]:
        """The mean at (m, d) points."""
        return _join([block.mean for block in self.blocks(x)])

    def deviations(self, x: Any) -> tuple[Float[AnyArray, "m s"], Float[AnyArray, " m"]]:
        """The deviations at (m, d) points, m s numbers, and their variance."""
        blocks = [(block.deviations, block.variance) for block in self.blocks(x)]
        deviations, variances = zip(*blocks, strict=True)
        return _join(list(deviations)), _join(list(variances))

    def moments(self, x: Any) -> tuple[Float[AnyArray, "m ..."], Float[AnyArray, " m"]]:
        """The mean and the variance, block by block: memory is that of one block."""
        means, variances = zip(*((block.mean, block.variance) for block in self.blocks(x)), strict=True)
        return _join(list(means)), _join(list(variances))

    def functions(self, is_corrected: bool) -> SamplePaths:
        """The sample functions: constant + phi(x) @ w + k(x, X) @ (weights of the mean - weights[:, k:]).

        `is_corrected`: add their near field. Outputs share deviations: function i of output j has deviation i + j, so
        that different outputs of one function deviate independently.
        """
        if self.prior is None:
            raise ValueError("This posterior has no samples. Condition with num_samples=16, say, to have functions.")
        k, s = self.num_outputs, self.prior.weights.shape[1]
        output, deviation = np.tile(np.arange(k), s), (np.arange(s)[:, None] + np.arange(k)).ravel() % s
        functions = lambda columns: columns[:, output] - columns[:, k + deviation]  # noqa: E731
        far = eqx.tree_at(lambda far: far.weights, self.far, functions(self.far.weights))
        near = self.near.map_columns(functions) if is_corrected and self.near is not None else None
        prior = eqx.tree_at(lambda prior: prior.weights, self.prior, self.prior.weights[:, deviation])
        return SamplePaths(self.constant, self.prior if k == 1 else prior, far, near, k)


def _join(blocks: list[AnyArray]) -> AnyArray:
    return blocks[0] if len(blocks) == 1 or is_traced(blocks) else np.concatenate(blocks)
