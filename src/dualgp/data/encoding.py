"""How the columns of a table become inputs and targets."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dualgp.data.tables import as_numbers, as_text, column_of, is_number, is_text, numbers_of

if TYPE_CHECKING:
    import pyarrow

MOST_CATEGORIES = 64  # of a text column: each becomes an input of its own
# 1,5 or 1'000 or 3 % or 31.1.2020: meant as a number or a date, most likely
NUMBER_OR_DATE = re.compile(r"[-+]?\d[\d.,' ]*(e[-+]?\d+)? ?%?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?", re.IGNORECASE)
MOSTLY, SEVERAL = 0.9, 10  # of the rows, and different values: when a column of text is taken for a mistake

Missing = Literal["fill", "drop", "error"]


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes inputs.

    - `kind`: "number" as it is, "time" in days, "category" as one 0/1 input for each of `categories`. Of two there is
      one input: 0 for the first, 1 for the second, and 0.5 for what is neither.
    - `fill`: what missing numbers are replaced by; a second input then says where they were. None: nothing is missing.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    fill: float | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        if self.kind == "category":
            shown = self.categories[1:] if len(self.categories) == 2 else self.categories
            return tuple(f"{self.name} = {value}" for value in shown)
        return (self.name,) if self.fill is None else (self.name, f"{self.name} is missing")

    def encode(self, values: pyarrow.ChunkedArray, scales: np.ndarray | None = None) -> list[np.ndarray]:
        """One array for each input. `scales`: their lengthscales, where a model has them already."""
        if self.kind == "category":
            text = as_text(values)
            if len(self.categories) == 2:
                return [np.select([text == value for value in self.categories], [0.0, 1.0], 0.5)]
            nowhere = _away_from_all(np.ones(len(self.categories)) if scales is None else scales)
            unknown = ~np.isin(text, self.categories)
            return [
                np.where(unknown, elsewhere, text == value)
                for value, elsewhere in zip(self.categories, nowhere, strict=True)
            ]
        self._check_kind(values.type)
        numbers = as_numbers(values, self.name)
        missing = np.isnan(numbers)
        if self.fill is not None:
            return [np.where(missing, self.fill, numbers), missing.astype(np.float64)]
        if missing.any():
            raise ValueError(
                f"Column {self.name!r} has {int(missing.sum())} missing value(s), the first in row "
                f"{int(np.argmax(missing)) + 1}; the model was fitted without any. Fill them in or leave the rows out."
            )
        return [numbers]

    def _check_kind(self, kind: Any) -> None:
        from pyarrow import types

        if not types.is_null(kind) and types.is_temporal(kind) != (self.kind == "time"):
            before, write = ("times", "Write them like 2020-01-31.") if self.kind == "time" else ("numbers", "")
            raise ValueError(
                f"Column {self.name!r} held {before} in the fitted table, and {kind} here. {write}".strip()
            )


def _away_from_all(scales: np.ndarray) -> np.ndarray:
    """Where in its 0/1 inputs an unknown category is: as far from all as they are from each other on average.

    Zeros would not do. An input with a large lengthscale does not matter, and then they are its category.
    """
    scales = np.where(np.isfinite(scales), scales, 0.0)
    nearness = np.mean(np.divide(1.0, scales**2, out=np.zeros_like(scales), where=scales > 0))
    return -math.sqrt(2.0 * nearness / len(scales)) * scales


@dataclass(frozen=True)
class Encoding:
    """How a table becomes (n, d) inputs and (n,) targets, and in `notes` what was decided on the way."""

    columns: tuple[Column, ...]
    target: str
    notes: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the d inputs."""
        return tuple(name for column in self.columns for name in column.inputs)

    @property
    def text(self) -> tuple[str, ...]:
        """The columns to read as text."""
        return tuple(column.name for column in self.columns if column.kind == "category")

    def x(self, table: pyarrow.Table, scales: np.ndarray | None = None) -> np.ndarray:
        """The inputs of a table that has the same columns, in any order. `scales`: a model's lengthscales."""
        absent = [column.name for column in self.columns if column.name not in table.column_names]
        if absent:
            raise ValueError(
                f"The table has no column {', '.join(map(repr, absent))}, which the model was fitted with. "
                f"It has {', '.join(map(repr, table.column_names))}."
            )
        x = np.empty((table.num_rows, len(self.inputs)))
        place = 0
        for column in self.columns:
            width = len(column.inputs)
            own = None if scales is None else scales[place : place + width]
            x[:, place : place + width] = np.stack(column.encode(column_of(table, column.name), own), axis=1)
            place += width
        return x

    def y(self, table: pyarrow.Table) -> np.ndarray:
        """The targets of a table; NaN where they are missing."""
        return numbers_of(table, self.target)

    def readable(self, table: pyarrow.Table) -> np.ndarray:
        """Which rows have every number that cannot be filled in."""
        keep = np.ones(table.num_rows, bool)
        for column in self.columns:
            if column.kind != "category" and column.fill is None:
                keep &= ~np.isnan(as_numbers(column_of(table, column.name), column.name))
        return keep

    def unseen(self, table: pyarrow.Table) -> list[str]:
        """A sentence for every column with categories that the model has never seen."""
        sentences = []
        for column in self.columns:
            if column.kind == "category":
                new = sorted(set(as_text(table.column(column.name)).tolist()) - set(column.categories))
                if new:
                    sentences.append(
                        f"Column {column.name!r} has values unknown to the model, such as {new[0]!r}: treated as "
                        + ("halfway between the two." if len(column.categories) == 2 else "far from all known ones.")
                    )
        return sentences


def make_encoding(table: pyarrow.Table, target: str, drop: Sequence[str] = (), missing: Missing = "fill") -> Encoding:
    """Decide for every column of a table how it becomes inputs."""
    unknown = [name for name in (target, *drop) if name not in table.column_names]
    if unknown:
        known = ", ".join(map(repr, table.column_names))
        raise ValueError(f"There is no column {', '.join(map(repr, unknown))} in the table. Its columns are {known}.")
    if len(set(table.column_names)) < len(table.column_names):
        raise ValueError(f"Column names must differ, got {table.column_names}.")
    columns, notes = [], []
    for name in table.column_names:
        if name == target or name in drop:
            continue
        if not name:
            notes.append("A column without a name (row numbers, as pandas writes them) was left out.")
            continue
        column, note = _choose(name, table.column(name), missing)
        if column is not None:
            columns.append(column)
        if note:
            notes.append(note)
    if not columns:
        raise ValueError("No column is left to predict from. " + " ".join(notes))
    return Encoding(tuple(columns), target, tuple(notes))


def complete_rows(table: pyarrow.Table, encoding: Any) -> np.ndarray:
    """Which rows have a target and everything else that they need."""
    return ~np.isnan(encoding.y(table)) & encoding.readable(table)


def _choose(name: str, values: pyarrow.ChunkedArray, missing: Missing) -> tuple[Column | None, str]:
    import pyarrow

    if pyarrow.types.is_null(values.type):
        return None, f"Column {name!r} is empty and was left out."
    if is_text(values.type):
        return _choose_category(name, values)
    numbers = as_numbers(values, name)
    absent = np.isnan(numbers)
    some = numbers[~absent]
    kind = "time" if pyarrow.types.is_temporal(values.type) else "number"
    if some.size == 0 or (np.all(some == some[0]) and not absent.any()):
        return None, f"Column {name!r} is {'empty' if some.size == 0 else 'constant'} and was left out."
    if not absent.any() or missing == "drop":
        return Column(name, kind), f"Column {name!r} is a time, used in days." if kind == "time" else ""
    if missing == "error":
        raise ValueError(
            f"Column {name!r} has {int(absent.sum())} missing value(s), the first in row {int(np.argmax(absent)) + 1}. "
            "Choose what to do with missing values: fill (with the median, and an input that says where), drop (the "
            "rows), or leave the column out."
        )
    fill = float(np.median(some))
    return Column(name, kind, fill=fill), (
        f"Column {name!r} has {int(absent.sum()):,} missing value(s): filled with the median {fill:.6g}, and an input "
        f"'{name} is missing' was added."
    )


def _choose_category(name: str, values: pyarrow.ChunkedArray) -> tuple[Column | None, str]:
    text = as_text(values)
    categories = [str(value) for value in np.unique(text)]
    if len(categories) == 1:
        return None, f"Column {name!r} is always {categories[0]!r} and was left out."
    _check_categories(name, text, categories)
    if len(categories) > MOST_CATEGORIES:
        raise ValueError(
            f"Column {name!r} is text with {len(categories):,} different values, such as {categories[0]!r}; up to "
            f"{MOST_CATEGORIES} become inputs. Leave it out (drop), or replace it by numbers that mean something."
        )
    return Column(name, "category", tuple(categories)), (
        f"Column {name!r} is text with {len(categories)} values: one input for each."
        if len(categories) > 2
        else f"Column {name!r} is {categories[0]!r} or {categories[1]!r}: 0 or 1."
    )


def _check_categories(name: str, text: np.ndarray, categories: list[str]) -> None:
    """Refuse what is not meant as text, and text that says nothing about other rows."""
    if len(categories) <= SEVERAL:
        return
    like = {value: NUMBER_OR_DATE.fullmatch(value.strip()) is not None for value in categories}
    odd = [value for value in categories if not is_number(value) and value != "missing"]
    if odd and np.mean([like[value] or value == "missing" for value in text]) >= MOSTLY:
        worst = next((value for value in odd if not like[value]), odd[0])
        row = int(np.argmax(text == worst)) + 1
        raise ValueError(
            f"Column {name!r} looks like numbers or dates, but {worst!r} in row {row} cannot be read as one. "
            "Write numbers like 1234.5, dates like 2020-01-31 and nothing where they are missing, or leave the column "
            "out (drop)."
        )
    if len(categories) >= MOSTLY * len(text):
        raise ValueError(
            f"Column {name!r} is text with {len(categories):,} different values in {len(text):,} rows, such as "
            f"{categories[0]!r}: it says nothing about other rows. Leave it out (drop). (Molecules go by smiles.)"
        )
