"""Kernels of functions of the inputs: some of the columns, or points on a sphere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import is_traced
from dualgp._checks import check_count, check_points, check_positive
from dualgp._types import AnyArray, Points, RandomKey
from dualgp.kernels.base import Kernel
from dualgp.kernels.features import ColumnFeatures, Features, SphereFeatures, SumFeatures, Term, points_on_sphere


class View(Kernel):
    """A kernel of a function of the inputs: kernel(seen(x), seen(x'))."""

    kernel: eqx.AbstractVar[Kernel]

    @abstractmethod
    def seen(self, x: Points) -> AnyArray:
        """The inputs of the inner kernel, from (m, d) inputs."""

    @abstractmethod
    def scales_seen(self, scales: Float[np.ndarray, " d"]) -> Float[np.ndarray, " c"]:
        """Approximate standard deviations of `seen`, from those of the columns."""

    @abstractmethod
    def seen_features(self, term: Term) -> Term:
        """The features as a function of all inputs, from those of the inner kernel."""

    def __call__(self, x1: Points, x2: Points) -> Float[Array, "n1 n2"]:
        return self.kernel(self.seen(x1), self.seen(x2))

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        inner = self.kernel.against(self.seen(x1), self.seen(x2), careful)
        return lambda tile: inner(self.seen(tile))

    def diagonal(self, x: Points) -> Float[AnyArray, " n"]:
        return self.kernel.diagonal(self.seen(x))

    def largest_variance(self) -> float:
        return self.kernel.largest_variance()

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        inner = self.kernel.features(key, num_features, len(self.scales_seen(np.ones(d))))
        return SumFeatures(tuple(self.seen_features(term) for term in inner.terms))

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        return self.kernel.coordinates(self.seen(x))

    @property
    def falls_with_distance(self) -> bool:
        return self.kernel.falls_with_distance

    def stored(self, x: AnyArray, dtype: Any) -> Array:
        return jnp.asarray(x, dtype)


class On(View):
    """kernel(x[:, start:stop], x'[:, start:stop]).

    `On(Tanimoto(), 0, 1024) * On(Matern32(), 1024)` is similarity of molecules times that of other columns. Such mixed
    inputs are kept as floats, four bytes a count.
    """

    kernel: Kernel
    start: int = eqx.field(static=True)
    stop: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_count(self.start, "On's start")
        if self.stop is not None:
            check_count(self.stop, "On's stop", self.start + 1)

    def seen(self, x: Points) -> AnyArray:
        return x[:, self.start : self.stop]

    def scales_seen(self, scales: Float[np.ndarray, " d"]) -> Float[np.ndarray, " c"]:
        return scales[self.start : self.stop]

    def seen_features(self, term: Term) -> Term:
        return ColumnFeatures(term, self.start, self.stop)

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

    @property
    def _shown(self) -> str:
        return f"{self.start}:{'' if self.stop is None else self.stop}"

    def __repr__(self) -> str:
        return f"On({self.kernel!r}, {self.start}{'' if self.stop is None else f', {self.stop}'})"


class OnSphere(View):
    """kernel(p, p') for the points p in space of longitudes and latitudes in degrees.

    The distance is the chord, which for near points is the distance over the surface; the date line and the poles need
    no special care. `lengthscale` is in the unit of `radius`: by default km, on the earth.
    `columns`: the numbers of the columns of longitude and latitude, in this order; other columns are ignored.

    `OnSphere(Matern32(500.0)) * On(Matern32(), 2)` for a table of longitudes, latitudes and something else.
    """

    kernel: Kernel
    columns: tuple[int, int] = eqx.field(static=True, default=(0, 1), converter=tuple)
    radius: float = eqx.field(static=True, default=6371.0, converter=float)

    def __check_init__(self) -> None:
        check_positive(self.radius, "OnSphere's radius")
        if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
            raise ValueError(f"OnSphere takes two columns, (longitude, latitude), got {self.columns!r}.")
        for column in self.columns:
            check_count(column, "A column of OnSphere")

    def seen(self, x: Points) -> AnyArray:
        return points_on_sphere(x, self.columns, self.radius)

    def scales_seen(self, scales: Float[np.ndarray, " d"]) -> Float[np.ndarray, " c"]:
        # Points all over the sphere have a standard deviation of radius / sqrt(3) in each direction.
        widest = min(float(np.deg2rad(scales[list(self.columns)].max())), 3**-0.5)
        return np.full(3, self.radius * widest)

    def seen_features(self, term: Term) -> Term:
        return SphereFeatures(term, self.columns, self.radius)

    def points(self, x: Any, name: str = "x", d: int | None = None) -> AnyArray:
        array = check_points(x, name, d)
        if max(self.columns) >= array.shape[1]:
            raise ValueError(f"{name} has {array.shape[1]} column(s), but OnSphere looks at columns {self.columns}.")
        latitude = array[:, self.columns[1]]
        if not is_traced(array) and np.abs(latitude).max(initial=0.0) > 90.0:
            raise ValueError(
                f"Column {self.columns[1]} of {name} is no latitude: it goes from {latitude.min():.4g} to "
                f"{latitude.max():.4g} degrees. Pass columns=(longitude, latitude)."
            )
        return array

    def __repr__(self) -> str:
        return f"OnSphere({self.kernel!r}, columns={self.columns}, radius={self.radius:g})"
