"""Quantiles of new observations, calibrated by rows that are predicted without themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import wide
from dualgp._types import AnyArray
from dualgp.operators.layout import Layout
from dualgp.operators.merging import GivenRows
from dualgp.posterior.calibration import FEWEST_SCORES, GAUSSIAN, Calibration, calibrate


class Quantiles(ABC):
    """The methods of `Posterior` that are about quantiles."""

    scored: Calibration | None
    given: GivenRows | None

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Where the rows live."""

    @abstractmethod
    def predict(self, x: Any, *, noise: Any = False) -> tuple[AnyArray, AnyArray]:
        """Mean and standard deviation."""

    @abstractmethod
    def _scores(self) -> Float[np.ndarray, "rows k"]:
        """(y - mean) / std, noise included, of rows predicted without themselves; empty if these are not known."""

    def quantile(self, x: Any, p: Any, *, noise: Any = True, calibrated: bool = True) -> Float[AnyArray, "m ... p"]:
        """The points below which a new observation at each x is with probabilities p, such as [0.05, 0.95].

        mean + std * Q_z(p), see `calibration`: (m, len(p)), or (m, k, len(p)) for k outputs. With `calibrated=False`,
        or for the function (`noise=False`), which nobody observes, Q_z is that of a Gaussian.
        """
        mean, std = self.predict(x, noise=noise)
        z = (GAUSSIAN if noise is False or not calibrated else self.calibration)(p).astype(std.dtype)
        return mean[..., None] + std.reshape(-1, *[1] * mean.ndim) * z

    @cached_property
    def calibration(self) -> Calibration:
        """The quantiles of errors, in standard deviations of observations, of rows predicted without themselves.

        From all rows if the solution is exact, otherwise from up to 4,096 random rows, those without far weights first;
        all outputs together. Gaussian below 100 rows, and without a near field if the solution is not exact.
        """
        if self.scored is not None:
            return self.scored
        with wide(), jax.ensure_compile_time_eval():
            return calibrate(self._scores().ravel())

    def _single_rows(self) -> Int[np.ndarray, " rows"]:
        """The rows of `x` that are one observation each; if these are few, all rows, merged ones too."""
        if self.given is None:
            return np.arange(self.layout.n, dtype=np.int32)
        single = np.flatnonzero(np.bincount(np.asarray(self.given.place)) == 1).astype(np.int32)
        return single if len(single) >= FEWEST_SCORES else np.arange(self.layout.n, dtype=np.int32)
