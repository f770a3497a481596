"""Tables of numbers of which each process reads its own rows: .npy files, memory mapped, and Parquet."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualgp.columns.tables import PANDAS_INDEX, as_numbers, is_text, open_array, reading_parquet, require_pyarrow


class RowFile(ABC):
    """A file with named columns of numbers, of which any range of rows can be read by itself."""

    path: Path
    names: tuple[str, ...]
    num_rows: int

    @abstractmethod
    def read(self, rows: slice, columns: Sequence[str]) -> np.ndarray:
        """The (rows, columns) numbers, without reading the others."""

    def numbers(self, rows: slice, columns: Sequence[str]) -> np.ndarray:
        """The same, refusing what is missing or infinite."""
        array = self.read(rows, columns)
        bad = ~np.isfinite(array)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(
                f"Column {columns[column]!r} of {self.path} has {int(bad[:, column].sum())} missing or infinite "
                f"value(s), the first in row {rows.start + int(row) + 1}. Fill them in or leave the rows out before."
            )
        return array

    def check(self, target: str, drop: Sequence[str] = ()) -> tuple[str, ...]:
        """The names of the inputs."""
        for name in (target, *drop):
            if name not in self.names:
                some = ", ".join(map(repr, self.names[:8])) + (", ..." if len(self.names) > 8 else "")
                raise ValueError(f"There is no column {name!r} in {self.path}. It has {some}.")
        inputs = tuple(name for name in self.names if name != target and name not in drop)
        if not inputs:
            raise ValueError(f"{self.path} has no column beside {target!r} to predict from.")
        return inputs


class NpyRows(RowFile):
    """A two-dimensional .npy file; columns are called "0", "1", ..."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        self.array = open_array(self.path)
        self.num_rows = self.array.shape[0]
        self.names = tuple(str(i) for i in range(self.array.shape[1]))

    def read(self, rows: slice, columns: Sequence[str]) -> np.ndarray:
        array = np.asarray(self.array[rows][:, [int(name) for name in columns]])
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


class ParquetRows(RowFile):
    """A .parquet file with columns of numbers, times or truth values: row groups are read one by one."""

    def __init__(self, path: str | os.PathLike) -> None:
        require_pyarrow()
        from pyarrow import parquet

        self.path = Path(path)
        with reading_parquet(self.path):
            self.file = parquet.ParquetFile(path)
        self.num_rows = self.file.metadata.num_rows
        schema = self.file.schema_arrow
        self.names = tuple(name for name in schema.names if not re.fullmatch(PANDAS_INDEX, name))
        self.text = {field.name for field in schema if is_text(field.type)}
        sizes = [self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)]
        self.ends = np.cumsum(sizes)

    def check(self, target: str, drop: Sequence[str] = ()) -> tuple[str, ...]:
        inputs = RowFile.check(self, target, drop)
        text = sorted(self.text & {target, *inputs})
        if text:
            raise ValueError(
                f"Column(s) {', '.join(map(repr, text))} of {self.path} are text. On many processes columns must be "
                "numbers: replace text by numbers before, leave the columns out (drop), or fit in one process."
            )
        return inputs

    def read(self, rows: slice, columns: Sequence[str]) -> np.ndarray:
        parts = [np.empty((0, len(columns)))]
        first = int(np.searchsorted(self.ends, rows.start, "right"))
        for group in range(first, len(self.ends)):
            start = int(self.ends[group - 1]) if group else 0
            if start >= rows.stop:
                break
            with reading_parquet(self.path):
                table = self.file.read_row_group(group, columns=list(columns))
            table = table.slice(max(0, rows.start - start), rows.stop - max(start, rows.start))
            parts.append(np.stack([as_numbers(table.column(name), name) for name in columns], axis=1))
        return np.concatenate(parts)


def open_rows(path: str | os.PathLike) -> RowFile:
    """A file of numbers by its ending: .npy or .parquet."""
    kinds: dict[str, Any] = {".npy": NpyRows, ".parquet": ParquetRows, ".pq": ParquetRows}
    kind = kinds.get(Path(path).suffix)
    if kind is None:
        raise ValueError(
            f"{path} cannot be read in parts: many processes take .npy or .parquet. Convert it, or fit in one process."
        )
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return kind(path)
