"""Tables as people have them (CSV, TSV, Parquet, data frames), and the numbers that are made of them."""

from __future__ import annotations

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
        array = np.load(path, allow_pickle=False)
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
    import pyarrow
    from pyarrow import csv

    with pyarrow.input_stream(str(path)) as stream:  # decompresses by the name's ending
        beginning = stream.read(1 << 16)
    if not beginning.strip():
        raise ValueError(f"{path} is empty. It needs a line of column names and a line for each row.")
    header = beginning.split(b"\n", 1)[0].decode("utf-8", "replace")
    delimiter = max(DELIMITERS, key=header.count)
    names = [name.strip().strip('"') for name in header.lstrip("\ufeff").split(delimiter)]
    if all(_is_number(name) for name in names):
        raise ValueError(
            f"The first line of {path} is {header[:60]!r}: numbers, not names. Add a line of column names."
        )
    parse = csv.ParseOptions(delimiter=delimiter)
    convert = {"null_values": MISSING, "strings_can_be_null": True, "quoted_strings_can_be_null": True}
    types = {name: pyarrow.string() for name in text}
    known = csv.ConvertOptions(column_types=types, **convert)
    try:
        # Types come from the first block. Whole numbers there may be followed by others, so they are read as floats.
        with csv.open_csv(path, parse_options=parse, convert_options=known) as reader:
            whole = [field.name for field in reader.schema if pyarrow.types.is_integer(field.type)]
        options = csv.ConvertOptions(column_types=types | dict.fromkeys(whole, pyarrow.float64()), **convert)
        return csv.read_csv(path, parse_options=parse, convert_options=options)
    except pyarrow.ArrowInvalid:
        # Something later in the file is of another type, or a quoted text holds a line break: look at all of it.
        at_once = csv.ReadOptions(block_size=max(1 << 20, min(2**31 - 1, 20 * path.stat().st_size)))
        careful = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        try:
            return csv.read_csv(path, at_once, careful, known)
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{path} cannot be read as a table ({error}).") from None


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

    def encode(self, values: pyarrow.ChunkedArray) -> list[np.ndarray]:
        """One array for each input."""
        if self.kind == "category":
            text = _as_text(values)
            if len(self.categories) == 2:
                return [np.select([text == value for value in self.categories], [0.0, 1.0], 0.5)]
            return [(text == value).astype(np.float64) for value in self.categories]
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

    def x(self, table: pyarrow.Table) -> np.ndarray:
        """The inputs of a table that has the same columns, in any order."""
        absent = [column.name for column in self.columns if column.name not in table.column_names]
        if absent:
            raise ValueError(
                f"The table has no column {', '.join(map(repr, absent))}, which the model was fitted with. "
                f"It has {', '.join(map(repr, table.column_names))}."
            )
        x = np.empty((table.num_rows, len(self.inputs)))
        place = 0
        for column in self.columns:
            for values in column.encode(table.column(column.name)):
                x[:, place] = values
                place += 1
        return x

    def y(self, table: pyarrow.Table) -> np.ndarray:
        """The targets of a table; NaN where they are missing."""
        return numbers_of(table, self.target)

    def readable(self, table: pyarrow.Table) -> np.ndarray:
        """Which rows have every number that cannot be filled in."""
        keep = np.ones(table.num_rows, bool)
        for column in self.columns:
            if column.kind != "category" and column.fill is None:
                keep &= ~np.isnan(_as_numbers(table.column(column.name), column.name))
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
                        + ("halfway between the two." if len(column.categories) == 2 else "none of the known ones.")
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
    if name not in table.column_names:
        raise ValueError(f"The table has no column {name!r}. It has {', '.join(table.column_names)}.")
    return _as_numbers(table.column(name), name)


def text_of(table: pyarrow.Table, name: str) -> list[str]:
    """A column as text, empty where it is missing."""
    if name not in table.column_names:
        raise ValueError(f"The table has no column {name!r}. It has {', '.join(table.column_names)}.")
    if not _is_text(table.column(name).type):
        raise ValueError(f"Column {name!r} does not hold text ({table.column(name).type}).")
    return [value or "" for value in table.column(name).to_pylist()]


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
    categories = [str(value) for value in np.unique(_as_text(values))]
    if len(categories) == 1:
        return None, f"Column {name!r} is always {categories[0]!r} and was left out."
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
