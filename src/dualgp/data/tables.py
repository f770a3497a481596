"""Tables as people have them (CSV, TSV, Parquet, data frames), and the numbers that are made of them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pyarrow

MOST_CATEGORIES = 64  # of a text column: each becomes an input of its own
DELIMITERS = ",;\t|"
MISSING = ["", "NA", "N/A", "n/a", "na", "NaN", "nan", "-NaN", "NULL", "null", "None", "#N/A", "?"]
MISSING += ["-", ".", "<NA>", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"]
# 1,5 or 1'000 or 3 % or 31.1.2020: meant as a number or a date, most likely
NUMBER_OR_DATE = re.compile(r"[-+]?\d[\d.,' ]*(e[-+]?\d+)? ?%?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?", re.IGNORECASE)
NOT_UTF8 = "{} is not text in UTF-8. Save it as such: in a spreadsheet, choose 'CSV UTF-8'."
MOSTLY, SEVERAL = 0.9, 10  # of the rows, and different values: when a column of text is taken for a mistake
MAGIC = {
    b"PK": "a zip archive or an Excel workbook",
    b"\xfd7zXZ": "compressed with xz",
    b"\x1f\x8b": "compressed with gzip",
}
PANDAS_INDEX = r"__index_level_\d+__"
MICROSECONDS_A_DAY = 86_400e6

Missing = Literal["fill", "drop", "error"]


def read_table(path: str | os.PathLike, text: Sequence[str] = ()) -> pyarrow.Table:
    """A table from a .parquet file, or from text with a line of column names (CSV, TSV; also compressed).

    The columns of a two-dimensional .npy file are called "0", "1", ... `text`: columns that are text whatever is in
    them; another file may have numbers there only, and 01 is not 1.
    """
    _require_pyarrow()
    import pyarrow.parquet

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.suffix in (".parquet", ".pq"):
        try:
            table = pyarrow.parquet.read_table(path)
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{path} is not a Parquet file, or is damaged ({error}).") from None
        return table.drop_columns([name for name in table.column_names if re.fullmatch(PANDAS_INDEX, name)])
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, EOFError):
            raise ValueError(f"{path} is not an array of numbers as np.save writes them.") from None
        if array.ndim != 2:
            raise ValueError(f"{path} must hold a two-dimensional array, a row for each point, got {array.shape}.")
        return pyarrow.table({str(i): array[:, i] for i in range(array.shape[1])})
    return _read_text(path, text)


def as_table(source: Any, text: Sequence[str] = ()) -> pyarrow.Table:
    """A path, a pandas or polars data frame, a dict of columns or a pyarrow table, as the last of these."""
    pyarrow = _require_pyarrow()
    if isinstance(source, (str, os.PathLike)):
        return read_table(source, text)
    if type(source).__module__.startswith("pandas"):
        return pyarrow.Table.from_pandas(source, preserve_index=False)  # row numbers are not data
    return source if isinstance(source, pyarrow.Table) else pyarrow.table(source)


def _require_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ImportError("Reading tables needs pyarrow: pip install 'dualgp[cli]'.") from None
    return pyarrow


def _read_text(path: Path, text: Sequence[str]) -> pyarrow.Table:
    from csv import reader

    import pyarrow
    from pyarrow import csv

    header = _header(path)
    delimiter = max(DELIMITERS, key=re.sub('"[^"]*"', "", header).count)
    (names,) = reader([header], delimiter=delimiter)
    if all(_is_number(name) for name in names):
        raise ValueError(
            f"The first line of {path} is {header[:60]!r}: numbers, not names. Add a line of column names."
        )
    parse = csv.ParseOptions(delimiter=delimiter)
    convert = {"null_values": MISSING, "strings_can_be_null": True, "quoted_strings_can_be_null": True}
    types = {name: pyarrow.string() for name in names if name.strip() in text}
    known = csv.ConvertOptions(column_types=types, **convert)
    try:
        # Types come from the first block. Whole numbers there may be followed by others, so they are read as floats.
        with csv.open_csv(path, parse_options=parse, convert_options=known) as blocks:
            whole = [field.name for field in blocks.schema if pyarrow.types.is_integer(field.type)]
        options = csv.ConvertOptions(column_types=types | dict.fromkeys(whole, pyarrow.float64()), **convert)
        return _tidy(csv.read_csv(path, parse_options=parse, convert_options=options), path)
    except pyarrow.ArrowInvalid:
        # Something later in the file is of another type, or a quoted text holds a line break: look at all of it.
        at_once = csv.ReadOptions(block_size=max(1 << 20, min(2**31 - 1, 20 * path.stat().st_size)))
        careful = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        try:
            return _tidy(csv.read_csv(path, at_once, careful, known), path)
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{path} cannot be read as a table ({error}).") from None


def _header(path: Path) -> str:
    """The first line of a text file, or a sentence on what else the file is."""
    import pyarrow

    try:
        with pyarrow.input_stream(str(path)) as stream:  # decompresses by the name's ending
            beginning = stream.read(1 << 16)
    except OSError as error:
        raise ValueError(f"{path} is not compressed as its name says ({error}).") from None
    for magic, what in MAGIC.items():
        if beginning.startswith(magic):
            raise ValueError(
                f"{path} is {what}, not text. Save the table as .csv or .parquet; a compressed .csv must end in .gz, "
                ".bz2 or .zst."
            )
    if not beginning.strip():
        raise ValueError(f"{path} is empty. It needs a line of column names and a line for each row.")
    try:
        return beginning.split(b"\n", 1)[0].rstrip(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8.format(path)) from None


def _tidy(table: pyarrow.Table, path: Path) -> pyarrow.Table:
    """Names without the spaces around them, and no bytes that are not text."""
    import pyarrow

    if any(pyarrow.types.is_binary(field.type) for field in table.schema):
        raise ValueError(NOT_UTF8.format(path))
    return table.rename_columns([name.strip() for name in table.column_names])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
            text = _as_text(values)
            if len(self.categories) == 2:
                return [np.select([text == value for value in self.categories], [0.0, 1.0], 0.5)]
            nowhere = _away_from_all(np.ones(len(self.categories)) if scales is None else scales)
            unknown = ~np.isin(text, self.categories)
            return [
                np.where(unknown, elsewhere, text == value)
                for value, elsewhere in zip(self.categories, nowhere, strict=True)
            ]
        self._check_kind(values.type)
        numbers = _as_numbers(values, self.name)
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
            x[:, place : place + width] = np.stack(column.encode(_column(table, column.name), own), axis=1)
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
                keep &= ~np.isnan(_as_numbers(_column(table, column.name), column.name))
        return keep

    def unseen(self, table: pyarrow.Table) -> list[str]:
        """A sentence for every column with categories that the model has never seen."""
        sentences = []
        for column in self.columns:
            if column.kind == "category":
                new = sorted(set(_as_text(table.column(column.name)).tolist()) - set(column.categories))
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


def numbers_of(table: pyarrow.Table, name: str) -> np.ndarray:
    """A column as floats, NaN where they are missing."""
    return _as_numbers(_column(table, name), name)


def text_of(table: pyarrow.Table, name: str) -> list[str]:
    """A column as text, empty where it is missing."""
    values = _column(table, name)
    if not _is_text(values.type):
        raise ValueError(f"Column {name!r} does not hold text ({values.type}).")
    return [value or "" for value in values.to_pylist()]


def _column(table: pyarrow.Table, name: str) -> pyarrow.ChunkedArray:
    count = table.column_names.count(name)
    if count == 0:
        raise ValueError(f"The table has no column {name!r}. It has {', '.join(table.column_names)}.")
    if count > 1:
        raise ValueError(f"The table has {count} columns called {name!r}. Column names must differ.")
    return table.column(name)


def _choose(name: str, values: pyarrow.ChunkedArray, missing: Missing) -> tuple[Column | None, str]:
    import pyarrow

    if pyarrow.types.is_null(values.type):
        return None, f"Column {name!r} is empty and was left out."
    if _is_text(values.type):
        return _choose_category(name, values)
    numbers = _as_numbers(values, name)
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
    text = _as_text(values)
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
    odd = [value for value in categories if not _is_number(value) and value != "missing"]
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


def _is_text(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    return (
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_dictionary(kind)
    )


def _as_text(values: pyarrow.ChunkedArray) -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_dictionary(values.type):
        parts = [(chunk.indices, chunk.dictionary.cast(pyarrow.string())) for chunk in values.chunks]
        decoded = [pyarrow.DictionaryArray.from_arrays(*part).dictionary_decode() for part in parts]
        values = pyarrow.chunked_array(decoded, pyarrow.string())
    filled = values.cast(pyarrow.string()).fill_null("missing")
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=object).astype(str)


def _as_numbers(values: pyarrow.ChunkedArray, name: str) -> np.ndarray:
    """Floats, NaN where missing; times in days (dates since 1970), truth values as 0 and 1."""
    import pyarrow

    kind = values.type
    try:
        days = 1.0
        if pyarrow.types.is_temporal(kind):  # microseconds as whole numbers first: there is no direct way to floats
            time = pyarrow.types.is_time(kind), pyarrow.types.is_duration(kind)
            unit = {(True, False): pyarrow.time64("us"), (False, True): pyarrow.duration("us")}
            values = values.cast(unit.get(time, pyarrow.timestamp("us")), safe=False).cast(pyarrow.int64())
            days = MICROSECONDS_A_DAY
        if pyarrow.types.is_boolean(kind):
            values = values.cast(pyarrow.int8())
        numbers = values.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False) / days
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise ValueError(f"Column {name!r} ({kind}) does not hold numbers ({str(error)[:120]}).") from None
    numbers = np.array(numbers, np.float64)
    if np.isinf(numbers).any():
        raise ValueError(
            f"Column {name!r} has infinite values, the first in row {int(np.argmax(np.isinf(numbers))) + 1}."
        )
    return numbers
