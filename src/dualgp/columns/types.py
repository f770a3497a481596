"""How one column of a table becomes inputs: a class for each kind of column.

Inputs that share a lengthscale are a group: a category is one group however many values it has, and so matters as a
whole or not at all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dualgp.columns.levels import Effects
from dualgp.columns.tables import as_codes, as_numbers, is_time

if TYPE_CHECKING:
    import pyarrow

# Distance of the points of a frequent text column, relative to the standard deviation of its effects: what a value
# does, and which value it is, count alike. With 0.3 the RMSE of 6,389 house prices was 9,900 instead of 7,800.
APART = 1.0
CIRCLES = {"time of day": 1.0, "weekday": 7.0, "season": 365.2425}  # the lengths of circles in days


@dataclass(frozen=True)
class Column(ABC):
    """A column of the fitted table, and what is needed to encode it again."""

    name: str

    @property
    @abstractmethod
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The groups of inputs that share a lengthscale, by name, and the names of their inputs."""

    @abstractmethod
    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        """The inputs of a column of the same kind."""

    def readable(self, values: pyarrow.ChunkedArray) -> np.ndarray:
        """Which rows can be encoded."""
        return np.ones(len(values), bool)

    def unseen(self, values: pyarrow.ChunkedArray) -> str:
        """A sentence about values that the model has never seen, if there are any."""
        return ""


@dataclass(frozen=True)
class Measured(Column):
    """Numbers and times: where they are missing, and how that is shown.

    `fill`: what missing values are replaced by. None: nothing is missing. `flagged`: whether an input says where.
    """

    fill: float | None = None
    flagged: bool = True

    def _numbers(self, values: pyarrow.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers with missing values filled in, and which were missing."""
        self._check_kind(values.type)
        numbers = as_numbers(values, self.name)
        missing = np.isnan(numbers)
        if self.fill is None and missing.any():
            raise ValueError(
                f"Column {self.name!r} has {int(missing.sum())} missing value(s), the first in row "
                f"{int(np.argmax(missing)) + 1}; the model was fitted without any. Fill them in or leave the rows out."
            )
        return np.where(missing, self.fill or 0.0, numbers), missing

    def readable(self, values: pyarrow.ChunkedArray) -> np.ndarray:
        return super().readable(values) if self.fill is not None else ~np.isnan(as_numbers(values, self.name))

    def _check_kind(self, kind: Any) -> None:
        from pyarrow import types

        if not types.is_null(kind) and is_time(kind) != isinstance(self, Time):
            before, write = ("times", "Write them like 2020-01-31.") if isinstance(self, Time) else ("numbers", "")
            raise ValueError(
                f"Column {self.name!r} held {before} in the fitted table, and {kind} here. {write}".strip()
            )

    @property
    def _flag(self) -> dict[str, tuple[str, ...]]:
        name = f"{self.name} is missing"
        return {} if self.fill is None or not self.flagged else {name: (name,)}


@dataclass(frozen=True)
class Logarithm:
    """log(x + shift), for skewed numbers; that of `least` where the sum is smaller."""

    shift: float
    least: float

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """The logarithms of some numbers."""
        return np.log(np.maximum(numbers + self.shift, self.least))

    def inverse(self, logarithms: np.ndarray) -> np.ndarray:
        """The numbers."""
        return np.exp(logarithms) - self.shift


@dataclass(frozen=True)
class Number(Measured):
    """Numbers as they are, or their logarithms; truth values are 0 and 1, durations are days."""

    scale: Logarithm | None = None

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        return {self.name: (self.name,)} | self._flag

    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        numbers, missing = self._numbers(values)
        numbers = numbers if self.scale is None else self.scale(numbers)
        return np.column_stack([numbers, missing] if self._flag else [numbers])


@dataclass(frozen=True)
class Time(Measured):
    """Dates and times: days since 1970 (where `has_trend`), and a point on a circle for each of `circles`."""

    has_trend: bool = True
    circles: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        names = {f"{self.name} ({circle})": ("cos", "sin") for circle in self.circles}
        circles = {name: tuple(f"{name}, {part}" for part in parts) for name, parts in names.items()}
        return ({self.name: (self.name,)} if self.has_trend else {}) | circles | self._flag

    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        days, missing = self._numbers(values)
        columns = [days] if self.has_trend else []
        for circle in self.circles:
            angle = 2.0 * math.pi * days / CIRCLES[circle]
            columns += [np.where(missing, 0.0, part) for part in (np.cos(angle), np.sin(angle))]
        return np.column_stack([*columns, missing] if self._flag else columns)


@dataclass(frozen=True)
class Coded(Column):
    """Text and categories: `categories` are the values in the fitted table. A missing value is one of them."""

    categories: tuple[str, ...] = ()

    def unseen(self, values: pyarrow.ChunkedArray) -> str:
        new = self._codes(values)[1]
        if not new:
            return ""
        return f"Column {self.name!r} has values unknown to the model, such as {new[0]!r}: {self._treated}"

    _treated = ""

    def _codes(self, values: pyarrow.ChunkedArray) -> tuple[np.ndarray, list[str]]:
        """The index of each value in `categories`, and the values that are not there."""
        from pyarrow import ArrowException

        try:
            return as_codes(values, self.categories)
        except ArrowException as error:
            raise ValueError(
                f"Column {self.name!r} held text in the fitted table, and {values.type} here ({error})."
            ) from None


@dataclass(frozen=True)
class Category(Coded):
    """Few values as points of equal distance, an unknown one in that distance from all; of two values 0, 1 and 0.5."""

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        shown = self.categories[1:] if len(self.categories) == 2 else self.categories
        return {self.name: tuple(f"{self.name} = {value}" for value in shown)}

    @property
    def _treated(self) -> str:  # type: ignore[override]
        return "treated as " + ("halfway between the two." if len(self.categories) == 2 else "far from all known ones.")

    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        codes, num = self._codes(values)[0], len(self.categories)
        if num == 2:
            return np.array([0.0, 1.0, 0.5])[codes][:, None]
        return simplex(num)[codes]


@dataclass(frozen=True)
class Rank(Coded):
    """Ordered categories as 0, 1, 2, ...; an unknown or missing value as the median.

    `flagged`: whether an input says where.
    """

    median: float = 0.0
    flagged: bool = False

    @property
    def _treated(self) -> str:  # type: ignore[override]
        return "treated as missing." if self.flagged else f"treated as {self.categories[round(self.median)]!r}."

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        flag = f"{self.name} is missing"
        names = [self.name, flag] if self.flagged else [self.name]
        return {name: (name,) for name in names}

    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        codes = self._codes(values)[0]
        missing = codes == len(self.categories)
        ranks = np.where(missing, self.median, codes)
        return np.column_stack([ranks, missing] if self.flagged else [ranks])


@dataclass(frozen=True, eq=False)
class Levels(Coded):
    """More values, each by what it does to the target and how little is known about that (levels.py).

    `effects` and `doubts` have one number for each of `categories`, and a last one for an unknown value; both are in
    standard deviations of the target. `usual`: the mean square of the doubts of the fitted rows, which is part of the
    noise. Where there are many rows for each value (`is_frequent`), values are points of equal distance as well, by
    `apart`.
    """

    effects: Float[np.ndarray, " levels"] | None = None
    doubts: Float[np.ndarray, " levels"] | None = None
    usual: float = 0.0
    apart: float = 0.0
    is_frequent: bool = False

    _treated = "treated as an average one, with a doubt."

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        effect = {self.name: (f"{self.name} (effect)", f"{self.name} (doubt)")}
        points = tuple(f"{self.name} = {value}" for value in self.categories)
        return effect | ({f"{self.name} (which)": points} if self.is_frequent else {})

    def fitted(self, found: Effects, codes: np.ndarray) -> Levels:
        """The column with effects that were found in rows with these codes."""
        doubts = found.doubts[codes] if self.is_frequent else found.rows[:, 1]
        apart = APART * float(np.std(found.effects[codes]))
        return replace(self, effects=found.effects, doubts=found.doubts, usual=float(np.mean(doubts**2)), apart=apart)

    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        if self.effects is None or self.doubts is None:
            raise ValueError(f"Column {self.name!r} has effects after a fit only.")
        codes = self._codes(values)[0]
        points = simplex(len(self.categories))[codes] * self.apart if self.is_frequent else np.empty((len(codes), 0))
        return np.column_stack([self.effects[codes], self.doubts[codes], points])


@dataclass(frozen=True, eq=False)
class Code(Levels):
    """Whole numbers that stand for something else, such as places or people: each by what it does, and as a number.

    `number`: how they are that; it fills missing ones.
    """

    number: Number | None = None

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        return super().groups | {f"{self.name} (number)": (self.name,)}

    def encode(self, values: pyarrow.ChunkedArray) -> Float[np.ndarray, "n inputs"]:
        return np.column_stack([super().encode(values), *([] if self.number is None else [self.number.encode(values)])])


def simplex(num: int) -> Float[np.ndarray, "points num"]:
    """Unit vectors, which all have the distance sqrt(2), and a last point that has it from them."""
    last = (1.0 - math.sqrt(1.0 + num)) / num  # (num - 1) c^2 + (c - 1)^2 = 2
    return np.vstack([np.eye(num), np.full((1, num), last)])
