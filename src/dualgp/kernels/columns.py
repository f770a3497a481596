"""A kernel on some of the columns, for mixed inputs: fingerprints beside temperatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._arrays import is_traced
from dualgp._checks import check_count, check_points
from dualgp._types import AnyArray, Points, RandomKey
from dualgp.kernels.base import Kernel
from dualgp.kernels.features import ColumnFeatures, Features, SumFeatures


class On(Kernel):
    """kernel(x[:, start:stop], x'[:, start:stop]).

    `On(Tanimoto(), 0, 1024) * On(Matern32(), 1024)` is similarity of molecules times similarity of the rest. Inputs of
    such a mixture are kept as floats, four bytes a count.
    """

    kernel: Kernel
    start: int = eqx.field(static=True)
    stop: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count(self.start, "On's start")
        if self.stop is not None:
            check_count(self.stop, "On's stop", self.start + 1)

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.kernel(self._seen(x1), self._seen(x2))

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        inner = self.kernel.against(self._seen(x1), self._seen(x2), careful)
        return lambda tile: inner(self._seen(tile))

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        return self.kernel.diagonal(self._seen(x))

    def largest_variance(self) -> float:
        return self.kernel.largest_variance()

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        inner = self.kernel.features(key, num_features, len(range(d)[self.start : self.stop]))
        return SumFeatures(tuple(ColumnFeatures(term, self.start, self.stop) for term in inner.terms))

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        return self.kernel.coordinates(self._seen(x))

    @property
    def is_stationary(self) -> bool:
        return self.kernel.is_stationary

    def points(self, x: Any, name: str = "x", d: int | None = None) -> AnyArray:
        array = check_points(x, name, d)
        seen = range(array.shape[1])[self.start : self.stop]
        if len(seen) == 0 or (self.stop or 0) > array.shape[1]:
            raise ValueError(f"{name} has {array.shape[1]} column(s), but the kernel looks at {self._shown}.")
        if not is_traced(array):
            self.kernel.points(array[:, self.start : self.stop], f"{name}[:, {self._shown}]")
        return array

    def stored(self, x: AnyArray, dtype: Any) -> Array:
        return jnp.asarray(x, dtype)

    def _seen(self, x: Points) -> AnyArray:
        return x[:, self.start : self.stop]

    @property
    def _shown(self) -> str:
        return f"{self.start}:{'' if self.stop is None else self.stop}"

    def __repr__(self) -> str:
        return f"On({self.kernel!r}, {self.start}{'' if self.stop is None else f', {self.stop}'})"
