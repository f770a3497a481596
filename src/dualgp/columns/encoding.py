"""How the columns of a table become inputs and targets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from dualgp.columns.levels import are_codes, fit_effects, residual
from dualgp.columns.tables import (
    as_codes,
    as_numbers,
    column_of,
    is_number,
    is_text,
    is_time,
    levels_of,
    ranks_of,
    targets_of,
)
from dualgp.columns.types import CIRCLES, Category, Code, Coded, Column, Levels, Logarithm, Measured, Number, Rank, Time

if TYPE_CHECKING:
    import pyarrow

# Different values of a text column: with more, their effects on the target are its inputs.
FEW_VALUES = 3
FREQUENT, MOST_POINTS = 30, 64  # rows for each value, and values, with which values are also points of equal distance
# 1,5 or 1'000 or 3 % or 31.1.2020: meant as a number or a date, most likely
NUMBER_OR_DATE = re.compile(r"[-+]?\d[\d.,' ]*(e[-+]?\d+)? ?%?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?", re.IGNORECASE)
MOSTLY, SEVERAL = 0.9, 10  # share of the rows, and number of values, from which a column of text is taken for a mistake
MOST_LEVELS = 0.9  # share of the rows: text with more different values says nothing about other rows
SKEWED, FEWEST_SKEWED = 2.0, 10  # ratio of the upper to the lower half's width, and different numbers: logarithms
LEAST_TURNS = {"time of day": 1.0, "weekday": 2.0, "season": 0.75}  # turns of each circle that the data must span

Missing = Literal["fill", "drop", "error"]
Target = str | tuple[str, ...] | None  # the name of the target, or of several


class Unusable(ValueError):
    """A column that is probably a mistake, such as numbers with one entry of text."""


@dataclass(frozen=True)
class Encoding:
    """How a table becomes (n, d) inputs and (n,) targets, and in `notes` what was decided on the way."""

    columns: tuple[Column, ...]
    target: Target
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The groups of inputs that share a lengthscale, by name, and the names of their inputs."""
        return {name: inputs for column in self.columns for name, inputs in column.groups.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table that are used."""
        return tuple(column.name for column in self.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the d inputs."""
        return tuple(name for inputs in self.groups.values() for name in inputs)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many inputs are in each group."""
        return tuple(map(len, self.groups.values()))

    @property
    def places(self) -> dict[str, slice]:
        """The inputs of each column of the table."""
        ends = np.cumsum([0] + [sum(map(len, column.groups.values())) for column in self.columns]).tolist()
        return {column.name: slice(*ends[i : i + 2]) for i, column in enumerate(self.columns)}

    @property
    def text(self) -> tuple[str, ...]:
        """The columns to read as text."""
        return tuple(
            column.name for column in self.columns if isinstance(column, Coded) and not isinstance(column, Code)
        )

    def fit(self, table: pyarrow.Table, y: Float[np.ndarray, " n"]) -> tuple[Encoding, Float[np.ndarray, "n d"]]:
        """The encoding with the effects of text with many values, and the inputs of the table that it is fitted to.

        The two differ: the effects that are inputs of a row are found without it.
        """
        encoding = self._with_codes(table, y)
        many = [column for column in encoding.columns if isinstance(column, Levels)]
        others = replace(self, columns=tuple(column for column in self.columns if not isinstance(column, Levels)))
        x = others.x(table) if others.columns else np.empty((table.num_rows, 0))
        codes = [as_codes(column_of(table, column.name), column.categories)[0] for column in many]
        found = fit_effects(codes, [len(column.categories) for column in many], x, y) if many else []
        columns, pieces = {column.name: column for column in encoding.columns}, {}
        for column, code, effect in zip(many, codes, found, strict=True):
            columns[column.name] = fitted = column.fitted(effect, code)
            # With many rows, leaving one out does not change an effect.
            pieces[column.name] = own = fitted.encode(column_of(table, column.name))
            if not column.is_frequent:
                own[:, :2] = effect.rows
        pieces = {name: x[:, place] for name, place in others.places.items()} | pieces
        x = np.column_stack([pieces[column.name] for column in encoding.columns])
        return replace(encoding, columns=tuple(columns.values())), x

    def _with_codes(self, table: pyarrow.Table, y: Float[np.ndarray, " n"]) -> Encoding:
        """The same where whole numbers that do not follow their order are codes."""
        numbers = [column for column in self.columns if isinstance(column, Number) and column.fill is None]
        if not numbers:
            return self
        x = replace(self, columns=tuple(numbers)).x(table)
        rest, found = residual(x, y), {}
        for column in numbers:
            values = column_of(table, column.name)
            if are_codes(as_numbers(values, column.name), rest):
                levels = levels_of(values)
                found[column.name] = Code(column.name, levels, number=column)
        said = "has numbers whose effects do not follow their order: what each of them does is an input, too."
        notes = [f"Column {name!r} {said}" for name in found]
        columns = tuple(found.get(column.name, column) for column in self.columns)
        return replace(self, columns=columns, notes=(*self.notes, *notes))

    def x(self, table: pyarrow.Table) -> Float[np.ndarray, "n d"]:
        """The inputs of a table that has the same columns, in any order."""
        self._check_names(table)
        x = np.empty((table.num_rows, len(self.inputs)))
        for column, place in zip(self.columns, self.places.values(), strict=True):
            x[:, place] = column.encode(column_of(table, column.name))
        return x

    def doubt(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The variance, in that of the target, of what is not known about rare and unknown values in rows of inputs."""
        total = np.zeros(len(x))
        for column in self.columns:
            if isinstance(column, Levels):
                total += np.maximum(x[:, self.places[column.name].start + 1] ** 2 - column.usual, 0.0)
        return total

    def y(self, table: pyarrow.Table) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n k"]:
        """The targets of a table; NaN where they are missing."""
        return targets_of(table, self.target or "target")

    def readable(self, table: pyarrow.Table) -> np.ndarray:
        """Which rows have every number that cannot be filled in."""
        self._check_names(table)
        keep = np.ones(table.num_rows, bool)
        for column in self.columns:
            keep &= column.readable(column_of(table, column.name))
        return keep

    def _check_names(self, table: pyarrow.Table) -> None:
        absent = [column.name for column in self.columns if column.name not in table.column_names]
        if absent:
            raise ValueError(
                f"The table has no column {', '.join(map(repr, absent))}, which the model was fitted with. "
                f"It has {', '.join(map(repr, table.column_names))}."
            )

    def unseen(self, table: pyarrow.Table) -> list[str]:
        """A sentence for every column with values that the model has never seen."""
        sentences = [column.unseen(column_of(table, column.name)) for column in self.columns]
        return [sentence for sentence in sentences if sentence]


def make_encoding(
    table: pyarrow.Table, target: Target = None, drop: Sequence[str] = (), missing: Missing = "fill"
) -> Encoding:
    """Decide for every column of a table but the target, or several of them, how it becomes inputs."""
    others = (*names_of(target), *drop)
    unknown = [name for name in others if name not in table.column_names]
    if unknown:
        known = ", ".join(map(repr, table.column_names))
        raise ValueError(f"There is no column {', '.join(map(repr, unknown))} in the table. Its columns are {known}.")
    if len(set(table.column_names)) < len(table.column_names):
        raise ValueError(f"Column names must differ, got {table.column_names}.")
    columns, left_out, notes, wrong = [], [], [], []
    for name in (name for name in table.column_names if name not in others):
        try:
            column = _choose(name, table.column(name), missing) if name else "row numbers, as pandas writes them"
        except Unusable as error:
            wrong.append(str(error))
            continue
        if isinstance(column, str):
            left_out.append(f"{name!r} ({column})")
        else:
            columns.append(column)
            notes.append(_describe(column, table.column(name)))
    if wrong:
        raise ValueError(" ".join(wrong))
    if left_out:
        notes.insert(0, f"Left out, because they say nothing about other rows: {', '.join(left_out)}.")
    notes = [note for note in notes if note]
    if not columns:
        raise ValueError("No column is left to predict from. " + " ".join(notes))
    return Encoding(tuple(columns), target, tuple(notes))


def names_of(target: Target) -> tuple[str, ...]:
    """The names of all targets."""
    return (target,) if isinstance(target, str) else tuple(target or ())


def complete_rows(table: pyarrow.Table, encoding: Any) -> np.ndarray:
    """Which rows have a target and readable inputs."""
    y = encoding.y(table)
    return ~np.isnan(y.reshape(len(y), -1)).any(axis=1) & encoding.readable(table)


def _choose(name: str, values: pyarrow.ChunkedArray, missing: Missing) -> Column | str:
    """How a column becomes inputs, or why it is left out."""
    import pyarrow

    if pyarrow.types.is_null(values.type):
        return "empty"
    if is_text(values.type):
        return _choose_coded(name, values)
    numbers = as_numbers(values, name)
    absent = np.isnan(numbers)
    some = numbers[~absent]
    if some.size == 0:
        return "empty"
    if np.all(some == some[0]) and not absent.any():
        return "constant"
    if absent.any() and missing == "error":
        raise Unusable(
            f"Column {name!r} has {int(absent.sum())} missing value(s), the first in row {int(np.argmax(absent)) + 1}. "
            "Choose what to do with missing values: fill (with the median, and an input that says where), drop (the "
            "rows), or leave the column out."
        )
    fill = float(np.median(some)) if absent.any() and missing == "fill" else None
    if not is_time(values.type):
        return Number(name, fill, scale=_logarithm(some))
    is_clock = pyarrow.types.is_time(values.type)
    circles = () if pyarrow.types.is_duration(values.type) else tuple(_circles(some, is_clock))
    return Time(name, fill, has_trend=not is_clock or not circles, circles=circles)


def _logarithm(numbers: np.ndarray) -> Logarithm | None:
    """Logarithms of numbers that are so skewed that these are much less so: distances are then ratios."""
    if numbers.min() < 0 or len(np.unique(numbers)) < FEWEST_SKEWED:
        return None
    shift = float(numbers[numbers > 0].min()) if numbers.min() == 0 else 0.0
    is_skewed = (skew := _skew(numbers)) > SKEWED and abs(math.log(_skew(np.log(numbers + shift)))) < math.log(skew)
    return Logarithm(shift, float(numbers.min()) + shift) if is_skewed else None


def _skew(numbers: np.ndarray) -> float:
    """How much farther above the median the upper 5 % begin than the lower 5 % end below it."""
    low, middle, high = np.quantile(numbers, [0.05, 0.5, 0.95])
    return float((high - middle) / (middle - low)) if low < middle < high else 1.0


def _circles(days: np.ndarray, is_clock: bool) -> Iterator[str]:
    """The circles that the data go round far enough, in steps smaller than a turn."""
    for circle, turn in CIRCLES.items():
        if is_clock and circle != "time of day":
            return
        phase = np.round(np.mod(days / turn, 1.0), 6)
        goes_round = is_clock or np.ptp(days) >= LEAST_TURNS[circle] * turn
        if goes_round and np.ptp(phase) > 0:
            yield circle


def _choose_coded(name: str, values: pyarrow.ChunkedArray) -> Column | str:
    categories = levels_of(values)
    if len(categories) == 1:
        return f"always {categories[0]!r}"
    if getattr(values.type, "ordered", False):
        codes = as_codes(values, ranks := ranks_of(values))[0]
        known = codes[codes < len(ranks)]
        return Rank(name, ranks, float(np.median(known)), len(known) < len(codes)) if len(ranks) > 1 else "constant"
    if len(categories) > SEVERAL:
        _check_meant_as_text(name, values, categories)
        if len(categories) >= MOST_LEVELS * len(values):
            return f"text with {len(categories):,} different values in {len(values):,} rows"
    num = len(categories)
    if num <= FEW_VALUES:
        return Category(name, categories)
    return Levels(name, categories, is_frequent=num <= MOST_POINTS and len(values) >= FREQUENT * num)


def _check_meant_as_text(name: str, values: pyarrow.ChunkedArray, categories: tuple[str, ...]) -> None:
    """Refuse numbers and dates that were read as text because of a few odd ones."""
    is_like = np.array([NUMBER_OR_DATE.fullmatch(value.strip()) is not None for value in categories])
    is_odd = np.array([not is_number(value) and value != "missing" for value in categories])
    is_missing = np.array([value == "missing" for value in categories])
    codes = as_codes(values, categories)[0]
    if is_odd.any() and np.mean((is_like | is_missing)[codes]) >= MOSTLY:
        worst = int(np.argmax(is_odd & ~is_like)) if (is_odd & ~is_like).any() else int(np.argmax(is_odd))
        raise Unusable(
            f"Column {name!r} looks like numbers or dates, but {categories[worst]!r} in row "
            f"{int(np.argmax(codes == worst)) + 1} cannot be read as one. Write numbers like 1234.5, dates like "
            "2020-01-31 and nothing where they are missing, or leave the column out (drop)."
        )


def _describe(column: Column, values: pyarrow.ChunkedArray) -> str:
    """The note about a column, if its encoding is not obvious."""
    name = f"Column {column.name!r}"
    if isinstance(column, Category):
        first, last = column.categories[0], column.categories[-1]
        is_pair = len(column.categories) == 2
        said = f"{first!r} or {last!r}: 0 or 1" if is_pair else f"text with {len(column.categories)} values: one group"
        return f"{name} is {said}."
    if isinstance(column, Levels):
        return f"{name} is text with {len(column.categories):,} values: their effects on the target are its input."
    if isinstance(column, Rank):
        return f"{name} is ordered, from {column.categories[0]!r} to {column.categories[-1]!r}: ranks."
    details: list[str] = []
    if isinstance(column, Time):
        used = ("days",) if column.has_trend else ()
        details.append(f"is a time, used as {' and '.join(used + column.circles)}")
    if isinstance(column, Measured) and column.fill is not None:
        missing = int(np.isnan(as_numbers(values, column.name)).sum())
        details.append(
            f"has {missing:,} missing value(s): filled with the median {column.fill:.6g}, an input says where"
        )
    if isinstance(column, Number) and column.scale is not None:
        details.append("is skewed: its logarithm is used")
    return f"{name} {'; it '.join(details)}." if details else ""
