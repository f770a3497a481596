"""Mean and deviations at a block of points: the one place where prior and far field are put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from dualgp._arrays import is_traced
from dualgp._checks import check_values
from dualgp._types import AnyArray
from dualgp.operators.cross import CrossProduct, evaluate_blocks
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.prior import PriorPaths

Block = tuple[Float[AnyArray, " m"], Float[AnyArray, "m s"]]


class Predictor(eqx.Module):
    """The posterior mean and the deviations of s sample functions from it:

        mean(x)        =  constant  +  k(x, X) @ weights[:, 0]
        deviations(x)  =  phi(x) @ w  -  k(x, X) @ weights[:, 1:]

    A sample function is the mean plus a deviation.
    """

    constant: AnyArray
    prior: PriorPaths | None
    far: CrossProduct

    def blocks(self, x: Any) -> Iterator[Block]:
        """Mean and deviations at one block of points after the other; traced points are one block."""
        functions = (self.far,) if self.prior is None else (self.far, self.prior)
        first = 0
        for far, *prior in evaluate_blocks(functions, x, self.far.x, self.far.kernel):
            mean = self.constant.astype(far.dtype) + far[:, 0]
            deviations = prior[0] - far[:, 1:] if prior else far[:, 1:]
            for values in (mean, deviations):
                check_values(values, x, first)
            first += len(mean)
            yield mean, deviations

    def mean(self, x: Any) -> Float[AnyArray, " m"]:
        """The mean at (m, d) points."""
        return _join([mean for mean, _ in self.blocks(x)])

    def deviations(self, x: Any) -> Float[AnyArray, "m s"]:
        """The deviations at (m, d) points: m s numbers."""
        return _join([deviations for _, deviations in self.blocks(x)])

    def moments(self, x: Any) -> tuple[Float[AnyArray, " m"], Float[AnyArray, " m"]]:
        """The mean and the mean squared deviation, block by block, so that nothing large exists."""
        means, squares = zip(
            *((mean, (deviations**2).mean(axis=1)) for mean, deviations in self.blocks(x)), strict=True
        )
        return _join(list(means)), _join(list(squares))

    def mean_alone(self) -> Predictor:
        """The predictor of the mean, which needs one column."""
        return Predictor(self.constant, None, _with_weights(self.far, self.far.weights[:, :1]))

    def functions(self) -> SamplePaths:
        """The sample functions: constant + phi(x) @ w + k(x, X) @ (weights[:, 0] - weights[:, 1:])."""
        if self.prior is None:
            raise ValueError("This posterior has no samples. Condition with num_samples=64, say, to have functions.")
        weights = self.far.weights[:, :1] - self.far.weights[:, 1:]
        return SamplePaths(self.constant, self.prior, _with_weights(self.far, weights))


def _with_weights(far: CrossProduct, weights: AnyArray) -> CrossProduct:
    return eqx.tree_at(lambda far: far.weights, far, weights)


def _join(blocks: list[AnyArray]) -> AnyArray:
    return blocks[0] if len(blocks) == 1 or is_traced(blocks) else np.concatenate(blocks)
