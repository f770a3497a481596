"""Data frames with text, categories, dates and missing values, as inputs of an estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils import check_array

from dualgp._arrays import refuse_fork
from dualgp._checks import check_outputs, refuse_other_kinds
from dualgp.columns.encoding import Encoding
from dualgp.columns.tables import as_codes, as_numbers, as_table, column_of
from dualgp.columns.types import Coded
from dualgp.sklearn.conditioning import refuse_holes, sized_targets


def needs_encoding(X: Any) -> bool:
    """Whether X is a frame with text, categories, times or missing values."""
    kind = type(X).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(X, "dtypes") and hasattr(X, "columns"):
        import pandas

        plain = [pandas.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes]
        return not all(plain) or bool(X.isna().to_numpy().any())
    if kind == "polars" and hasattr(X, "schema"):
        import polars

        plain = [dtype.is_numeric() or dtype == polars.Boolean for dtype in X.schema.values()]
        return not all(plain) or any(column.has_nulls() or column.is_nan().any() for column in X)
    return kind == "pyarrow"


def raw_columns(table: Any, encoding: Encoding) -> list[np.ndarray]:
    """The columns that an encoding uses, as numbers or codes, to compare rows."""
    columns = []
    for column in encoding.columns:
        values = column_of(table, column.name)
        if isinstance(column, Coded):
            columns.append(as_codes(values, column.categories)[0].astype(np.float64))
        else:
            columns.append(as_numbers(values, column.name))
    return columns


def check_frame(X: Any, y: Any, reset: bool = True) -> Float[np.ndarray, " n"] | Float[np.ndarray, "n k"]:
    """The targets of a frame."""
    refuse_fork()
    refuse_other_kinds(y, "y")
    refuse_holes(y)
    y = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
    return sized_targets(np.asarray(check_outputs(y, as_table(X).num_rows)), reset)


def encode(X: Any, encoding: Encoding) -> Float[np.ndarray, "n d"]:
    """The inputs of a frame or a table of pyarrow; warns about values that were not in the fitted table."""
    if isinstance(X, np.ndarray | list):
        raise TypeError(
            f"This model was fitted to a frame with the columns {', '.join(map(repr, encoding.names))}. Pass such a "
            f"frame, got {type(X).__name__}."
        )
    table = as_table(X, encoding.text)
    x = encoding.x(table)
    for sentence in encoding.unseen(table):
        warnings.warn(sentence, UserWarning, stacklevel=4)
    return x
