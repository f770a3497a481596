"""One wording for every input error: what was wrong, what was got, what to do."""

import datetime
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dualgp._arrays import is_traced

LARGEST, SMALLEST_DEVIATION = 1e150, 1e-150  # float64 can square these and add the squares
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


def refuse_other_kinds(value: Any, name: str) -> None:
    """Refuse masked entries, which would be used as if they were not, and times, whose unit would be guessed."""
    if np.ma.isMaskedArray(value) and np.ma.getmaskarray(value).any():
        number = int(np.ma.getmaskarray(value).sum())
        raise ValueError(f"{name} has {number} masked value(s). Drop those rows, or fill them in: {name}.filled(...).")
    if _has_times(value):
        raise TypeError(
            f"{name} holds times (dates, datetimes or durations). Make them numbers in a unit that you choose, such as "
            "days: (t - t.min()) / np.timedelta64(1, 'D')."
        )
    if (name_of_text := _text_column(value)) is not None:
        raise TypeError(
            f"{name} holds text in column {name_of_text!r}. Encode it as numbers first; the command `dualgp fit` does."
        )
    if hasattr(value, "nnz") and hasattr(value, "toarray"):
        raise TypeError(f"{name} is sparse, and all of it is used. Pass a dense array: {name}.toarray().")


def _text_column(frame: Any) -> Any:
    """The name of a data frame's first column whose first value is text, or of a series of text."""
    names = getattr(frame, "columns", None)
    if names is None and hasattr(frame, "iloc") and len(frame) and _is_text(frame):
        return str(frame.name)
    if names is None or not len(frame):
        return None
    return next((name for name in names if _is_text(frame[name])), None)


def _is_text(column: Any) -> bool:
    kind = str(getattr(column, "dtype", ""))
    return kind.lower() in ("object", "str", "string", "category", "categorical") and isinstance(
        next(iter(column)), str
    )


def _has_times(value: Any) -> bool:
    kinds = getattr(value, "dtypes", getattr(value, "dtype", None))  # `dtypes` of data frames
    kinds = list(kinds) if isinstance(kinds, Iterable) else [kinds]
    if any(getattr(kind, "kind", "") in ("m", "M") or str(kind).startswith(("Date", "Duration")) for kind in kinds):
        return True
    if isinstance(value, (list, tuple)) and value:
        return _has_times(value[0])
    return isinstance(value, TIMES) or (isinstance(value, np.ndarray) and value.size > 0 and _is_time(value))


def _is_time(array: np.ndarray) -> bool:
    return array.dtype == object and isinstance(array.flat[0], TIMES)


def as_float_array(value: Any, name: str) -> np.ndarray | jax.Array:
    """`value` as a real floating-point array; integers and booleans become float64, other kinds are refused."""
    if is_traced(value):
        is_float = jnp.issubdtype(value.dtype, jnp.floating)
        return value if is_float else value.astype(jnp.result_type(value.dtype, jnp.float32))
    refuse_other_kinds(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array of numbers ({error}). Pass an array of floats.") from None
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    if array.dtype.kind != "f":
        raise TypeError(
            f"{name} must hold real numbers, got dtype {array.dtype}. Encode text and categories as numbers first."
        )
    return array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64, copy=False)


def check_finite(array: np.ndarray | jax.Array, name: str) -> None:
    """Refuse NaN and infinite entries, saying how many there are and where the first one is."""
    if is_traced(array):
        return
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"{name}[{', '.join(map(str, where))}]"
        raise ValueError(
            f"{name} has {int(bad.sum())} NaN or infinite value(s), the first at {place}. "
            "Drop or impute those rows before calling."
        )


def check_size(array: np.ndarray | jax.Array, name: str) -> None:
    """Refuse finite numbers whose squares overflow."""
    if is_traced(array) or array.dtype.itemsize < 8 or not array.size:
        return
    largest = max(float(array.max()), -float(array.min()))
    if largest > LARGEST:
        where = np.unravel_index(int(np.argmax(np.abs(array))), array.shape)
        place = f"{name}[{', '.join(str(int(i)) for i in where)}]"
        raise ValueError(
            f"{name} has values as large as {place} = {array[where]:.3g}: too large to be squared. Rescale, or drop "
            "such rows."
        )


def check_spread(y: np.ndarray) -> None:
    """Refuse targets, (n,) or (n, k), that vary, but too little to be squared."""
    spread = np.ptp(y, axis=0) if len(y) else np.zeros(1)
    few = (spread > 0) & (spread < SMALLEST_DEVIATION)
    if few.any():
        raise ValueError(
            f"y varies by {np.min(spread, where=few, initial=np.inf):.3g} only: too little to be squared. Choose a "
            "smaller unit."
        )


def check_values(values: Any, x: Any, first: int = 0) -> None:
    """Refuse values that overflowed, naming the point; `first` is the number of the first row of x."""
    if is_traced(values, x):
        return
    bad = ~np.isfinite(values)
    if bad.any():
        row = first + int(np.argwhere(bad)[0][0])
        raise ValueError(
            f"x[{row}] = {np.array2string(np.asarray(x)[row], precision=3, threshold=8)} is too far from the data for "
            f"{np.asarray(values).dtype}: the answer there is not a finite number. Drop that point."
        )


def check_points(x: Any, name: str = "x", d: int | None = None) -> np.ndarray | jax.Array:
    """Inputs as a finite (m, d) array; a 1-D array is m points in one dimension."""
    array = as_float_array(x, name)
    if array.ndim == 1 and d in (None, 1):
        array = array[:, None]
    if array.ndim != 2:
        hint = f" For one point, pass {name}[None, :]." if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (points, dimensions), got {array.shape}.{hint}")
    if d is not None and array.shape[1] != d:
        raise ValueError(
            f"{name} has {array.shape[1]} column(s), but the model was built on {d}. Pass the same columns in order."
        )
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns (shape {array.shape}). Pass at least one input dimension.")
    check_finite(array, name)
    check_size(array, name)
    return array


def check_counts(x: Any, name: str, d: int | None, largest: int, largest_sum: int) -> np.ndarray | jax.Array:
    """Counts as an (m, d) array of bytes: whole numbers from 0 to `largest`, rows that sum to at most `largest_sum`."""
    if is_traced(x):
        return check_points(x, name, d)
    array = np.asarray(x)
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != (d or array.shape[1]):
        array = np.asarray(check_points(x, name, d))
        bad = (array < 0) | (array > largest) | (array != np.floor(array))
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{name} must hold counts, whole numbers from 0 to {largest}, for this kernel; {name}[{row}, {column}] "
                f"is {array[row, column]:.6g}. Pass fingerprints as they are, neither scaled nor centred."
            )
        array = array.astype(np.uint8)
    sums = array.sum(axis=1, dtype=np.int64)
    if sums.max(initial=0) > largest_sum:
        raise ValueError(
            f"The counts in row {int(np.argmax(sums))} of {name} add up to {int(sums.max()):,}; at most "
            f"{largest_sum:,} are possible. Use fewer columns or smaller counts."
        )
    return array


def check_targets(y: Any, n: int, name: str = "y") -> np.ndarray | jax.Array:
    """Targets as a finite (n,) array that matches the inputs in length; (n, 1) is accepted."""
    array = as_float_array(y, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {array.shape}.")
    if array.shape[0] != n:
        raise ValueError(f"{name} has {array.shape[0]} value(s) for {n} row(s) of x. Pass one target per row.")
    check_finite(array, name)
    check_size(array, name)
    return array


def check_outputs(y: Any, n: int) -> np.ndarray | jax.Array:
    """Targets of one output, (n,) or (n, 1), as (n,); targets of several outputs as a finite (n, k) array."""
    array = as_float_array(y, "y")
    if array.ndim != 2 or array.shape[1] == 1:
        return check_targets(array, n)
    if array.shape[0] != n or array.shape[1] == 0:
        raise ValueError(f"y has shape {array.shape} for {n} row(s) of x. Pass one row of targets for each.")
    check_finite(array, "y")
    check_size(array, "y")
    return array


def as_columns(y: Any) -> np.ndarray:
    """Targets in float64 with a column for each output: (n,) becomes (n, 1)."""
    columns = np.asarray(y, np.float64)
    return columns[:, None] if columns.ndim == 1 else columns


def check_positive(value: Any, name: str, advice: str = "") -> None:
    """Refuse values that are not finite and positive. Infinite lengthscales are allowed by their own check."""
    if is_traced(value):
        return
    array = np.asarray(as_float_array(value, name))
    if array.size == 0 or not np.all(np.isfinite(array)) or not np.all(array > 0):
        raise ValueError(f"{name} must be positive and finite, got {_show(array)}.{' ' + advice if advice else ''}")


def refuse_traced(what: str, *trees: Any) -> None:
    """Refuse traced arguments: `what` runs on the host and cannot be inside a JAX transformation."""
    if is_traced(*trees):
        raise TypeError(
            f"{what} cannot be called inside jax.jit, jax.grad or jax.vmap: its loops look at numbers. Call it "
            "outside; mean and samples of a posterior may be traced, and `learn` finds hyperparameters."
        )


def check_key(key: Any, purpose: str) -> jax.Array:
    """Refuse a missing or malformed random key."""
    if key is None:
        raise ValueError(f"{purpose} needs randomness: pass key=jax.random.key(0) (any integer seed will do).")
    if not isinstance(key, jax.Array):
        raise TypeError(f"key must be a JAX random key, got {type(key).__name__}. Pass key=jax.random.key({key!r}).")
    return key


def check_number(value: Any, name: str) -> None:
    """Refuse a value that is not a number."""
    if not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, got {value!r}.")


def check_positive_number(value: Any, name: str, advice: str = "") -> None:
    """Refuse all but one positive and finite number."""
    check_number(value, name)
    check_positive(value, name, advice)


def check_share(value: Any, name: str, advice: str = "") -> None:
    """Refuse all but a number that is at least 0 and below 1."""
    check_number(value, name)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}{advice}.")


def check_memory(memory: Any) -> None:
    """Refuse what is no number of bytes; None is a part of the machine's."""
    if memory is not None:
        check_number(memory, "memory")
        if not memory >= 0:
            raise ValueError(f"memory must be a number of bytes, got {memory!r}.")


def check_count(value: Any, name: str, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def _show(array: np.ndarray) -> str:
    return np.array2string(array, precision=4, threshold=8)
