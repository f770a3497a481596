"""Reading tables (CSV, TSV, Parquet, data frames), and their columns as numbers or text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualgp._checks import LARGEST, as_float_array

if TYPE_CHECKING:
    import pyarrow

DELIMITERS = ",;\t|"
MISSING = ["", "NA", "N/A", "n/a", "na", "NaN", "nan", "-NaN", "NULL", "null", "None", "#N/A", "?"]
MISSING += ["-", ".", "<NA>", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"]
NOT_UTF8 = "{} is not text in UTF-8. Save it as such: in a spreadsheet, choose 'CSV UTF-8'."
MAGIC = {
    b"PK": "a zip archive or an Excel workbook",
    b"\xfd7zXZ": "compressed with xz",
    b"\x1f\x8b": "compressed with gzip",
}
PANDAS_INDEX = r"__index_level_\d+__"
MICROSECONDS_A_DAY = 86_400e6


def read_table(path: str | os.PathLike, text: Sequence[str] = ()) -> pyarrow.Table:
    """A table from a .parquet file, or from text with a line of column names (CSV, TSV; also compressed).

    The columns of a two-dimensional .npy file are called "0", "1", ... `text`: columns that are text whatever is in
    them; another file may have numbers there only, and 01 is not 1.
    """
    pyarrow = require_pyarrow()

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.suffix in (".parquet", ".pq"):
        import pyarrow.parquet

        with reading_parquet(path):
            table = pyarrow.parquet.read_table(path)
        return table.drop_columns([name for name in table.column_names if re.fullmatch(PANDAS_INDEX, name)])
    if path.suffix == ".npy":
        array = open_array(path)
        return pyarrow.table({str(i): as_float_array(array[:, i], str(path)) for i in range(array.shape[1])})
    return _read_text(path, text)


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Around what a damaged Parquet file makes pyarrow raise: a sentence."""
    pyarrow = require_pyarrow()
    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path} is not a Parquet file, or is damaged ({' '.join(str(error).split())}).") from None


def open_array(path: Path) -> np.ndarray:
    """The two-dimensional array of numbers in a .npy file, as a memory map: its size is compared with the file's."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # what a damaged header makes its parser raise has no end
        raise ValueError(f"{path} is not an array of numbers as np.save writes them ({error}).") from None
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{path} must hold a two-dimensional array of numbers, a row for each point, got {array.dtype}"
            f"{array.shape}."
        )
    return array


def as_table(source: Any, text: Sequence[str] = ()) -> pyarrow.Table:
    """A path, a pandas or polars data frame, a dict of columns or a pyarrow table, as the last of these."""
    pyarrow = require_pyarrow()
    if isinstance(source, (str, os.PathLike)):
        return read_table(source, text)
    try:
        if type(source).__module__.startswith("pandas"):
            return pyarrow.Table.from_pandas(source, preserve_index=False)  # row numbers are not data
        return _without_views(source if isinstance(source, pyarrow.Table) else pyarrow.table(source))
    except (ValueError, TypeError, OverflowError, AttributeError, pyarrow.ArrowException) as error:
        why = " ".join(map(str, error.args))
        raise ValueError(
            f"The {type(source).__name__} is no table ({why}). Pass a data frame whose columns hold one kind of value "
            "each: numbers, text or times."
        ) from None


def _without_views(table: pyarrow.Table) -> pyarrow.Table:
    """The table with text as Arrow can filter it: polars has views, for which it has no such function."""
    import pyarrow

    types = (pyarrow.large_string() if pyarrow.types.is_string_view(kind) else kind for kind in table.schema.types)
    return table.cast(pyarrow.schema(zip(table.column_names, types, strict=True)))


def require_pyarrow() -> Any:
    """The module pyarrow; an error with advice if it is missing."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError("Reading tables needs pyarrow: pip install 'dualgp[cli]'.") from None
    return pyarrow


def _read_text(path: Path, text: Sequence[str]) -> pyarrow.Table:
    from csv import Error, reader

    import pyarrow
    from pyarrow import csv

    header = _header(path)
    delimiter = max(DELIMITERS, key=re.sub('"[^"]*"', "", header).count)
    try:
        (names,) = reader([header], delimiter=delimiter)
    except Error as error:
        raise ValueError(f"{path} cannot be read as a table: its first line is no list of names ({error}).") from None
    if all(is_number(name) for name in names):
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
        return re.split(rb"\r\n?|\n", beginning, maxsplit=1)[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8.format(path)) from None


def _tidy(table: pyarrow.Table, path: Path) -> pyarrow.Table:
    """Names and text without the blanks around them, and no bytes that are not text."""
    import pyarrow
    import pyarrow.compute

    if any(pyarrow.types.is_binary(field.type) for field in table.schema):
        raise ValueError(NOT_UTF8.format(path))
    for place, field in enumerate(table.schema):
        if pyarrow.types.is_string(field.type):
            trimmed = pyarrow.compute.utf8_trim_whitespace(table.column(place))
            is_missing = pyarrow.compute.is_in(trimmed, pyarrow.array(MISSING))
            trimmed = pyarrow.compute.if_else(is_missing, pyarrow.scalar(None, pyarrow.string()), trimmed)
            table = table.set_column(place, field.name, trimmed)
    return table.rename_columns([name.strip() for name in table.column_names])


def is_number(text: str) -> bool:
    """Whether Python reads the text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def numbers_of(table: pyarrow.Table, name: str) -> np.ndarray:
    """A column as floats, NaN where they are missing."""
    return as_numbers(column_of(table, name), name)


def targets_of(table: pyarrow.Table, target: str | Sequence[str]) -> np.ndarray:
    """The target (n,), or several as (n, k)."""
    if isinstance(target, str):
        return numbers_of(table, target)
    return np.stack([numbers_of(table, name) for name in target], axis=1)


def text_of(table: pyarrow.Table, name: str) -> list[str]:
    """A column as text, empty where it is missing."""
    values = column_of(table, name)
    if not is_text(values.type):
        raise ValueError(f"Column {name!r} does not hold text ({values.type}).")
    return [value or "" for value in values.to_pylist()]


def column_of(table: pyarrow.Table, name: str) -> pyarrow.ChunkedArray:
    """The one column of that name."""
    count = table.column_names.count(name)
    if count == 0:
        raise ValueError(f"The table has no column {name!r}. It has {', '.join(table.column_names)}.")
    if count > 1:
        raise ValueError(f"The table has {count} columns called {name!r}. Column names must differ.")
    return table.column(name)


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds text."""
    import pyarrow

    types = pyarrow.types
    return (
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_dictionary(kind)
    )


def is_time(kind: Any) -> bool:
    """Whether a column of this type holds dates, times or durations."""
    import pyarrow

    return pyarrow.types.is_temporal(kind)


def levels_of(values: pyarrow.ChunkedArray) -> tuple[str, ...]:
    """The different values of text in alphabetical order, with "missing" where they are missing."""
    return tuple(sorted(_as_text(values).unique().to_pylist()))


def ranks_of(values: pyarrow.ChunkedArray) -> tuple[str, ...]:
    """The different values of ordered categories that occur, in their order."""
    import pyarrow

    order = dict.fromkeys(
        value for chunk in values.chunks for value in chunk.dictionary.cast(pyarrow.string()).to_pylist()
    )
    present = set(levels_of(values))
    return tuple(value for value in order if value in present)


def as_codes(values: pyarrow.ChunkedArray, levels: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """The index of each text in `levels`, len(levels) for others; and the values that are not in `levels`."""
    import pyarrow

    text = _as_text(values)
    codes = pyarrow.compute.index_in(text, pyarrow.array(levels, pyarrow.string())).fill_null(len(levels))
    codes = np.asarray(codes.to_numpy(zero_copy_only=False) if hasattr(codes, "chunks") else codes, np.int64)
    new = text.filter(pyarrow.array(codes == len(levels))).unique().to_pylist()
    return codes, sorted(new)


def _as_text(values: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Strings, "missing" where they are missing."""
    import pyarrow
    import pyarrow.compute

    if pyarrow.types.is_dictionary(values.type):
        parts = [(chunk.indices, chunk.dictionary.cast(pyarrow.string())) for chunk in values.chunks]
        decoded = [pyarrow.DictionaryArray.from_arrays(*part).dictionary_decode() for part in parts]
        values = pyarrow.chunked_array(decoded, pyarrow.string())
    return values.cast(pyarrow.string()).fill_null("missing")


def as_numbers(values: pyarrow.ChunkedArray, name: str) -> np.ndarray:
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
    large = np.abs(numbers) > LARGEST
    if large.any():
        row = int(np.argmax(large))
        raise ValueError(f"Column {name!r} has the value {numbers[row]:.6g} in row {row + 1}: too large to be squared.")
    return numbers
