"""Odd arrays and settings, and the plain ones that they are variants of."""

from __future__ import annotations

import datetime
import warnings
from typing import Any

import jax
import numpy as np

import dualgp as dg

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = np.sin(X).sum(axis=1) + 0.1 * RNG.normal(size=24)
KEY = jax.random.key(0)
KERNEL = dg.Matern32(1.0)
JUNK = (
    None,
    "a",
    float("nan"),
    float("inf"),
    -1,
    0,
    10**8,
    10**29,
    1e-320,
    1e300,
    True,
    [],
    [1, 2],
    np.zeros((2, 2)),
    {},
)


def odd_arrays(good: np.ndarray) -> dict[str, tuple[Any, bool]]:
    """Variants of an array, and whether each holds the same numbers."""
    found: dict[str, tuple[Any, bool]] = {}
    for dtype in (">f8", "longdouble", object):
        found[f"dtype {dtype}"] = good.astype(dtype), True
    for dtype in ("float32", "float16", "int8", "uint8", "bool", "complex128", "U9", "S9", "V8"):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found[f"dtype {dtype}"] = good.astype(dtype) if dtype != "V8" else good.view("V8"), False
    frozen = good.copy()
    frozen.flags.writeable = False
    found |= {
        "list": (good.tolist(), True),
        "tuple": (tuple(map(tuple, good)) if good.ndim == 2 else tuple(good), True),
        "fortran": (np.asfortranarray(good), True),
        "strided": (np.repeat(good, 2, axis=0)[::2], True),
        "backwards": (good[::-1][::-1], True),
        "read only": (frozen, True),
        "unmasked": (np.ma.masked_array(good, mask=False), True),
        "jax": (jax.numpy.asarray(good), False),
        "matrix": (np.asmatrix(good), False),
    }
    for value in (np.nan, np.inf, -np.inf, 1e308, 1e300, 1e160, 1e39, 1e20, 5e-324, 1e-310, -0.0):
        changed = good.copy()
        changed.flat[min(4, good.size - 1)] = value
        found[f"with {value:g}"] = changed, False
    for scale in (1e300, 1e160, 1e149, 1e30, 1e-30, 1e-140, 1e-160, 5e-324, 0.0):
        found[f"times {scale:g}"] = good * scale, False
    found |= {f"plus {shift:g}": (good + shift, False) for shift in (1e6, 1e9, 1e16, 1e150, 1e300)}
    days = np.datetime64("2020-01-01") + np.arange(good.size).reshape(good.shape)
    found |= {
        "masked": (np.ma.masked_array(good, mask=good > 1, fill_value=-9999.0), False),
        "all masked": (np.ma.masked_all(good.shape), False),
        "datetimes": (days, False),
        "timedeltas": (days - days.flat[0], False),
        "NaT": (np.full(good.shape, np.datetime64("NaT")), False),
        "dates": (
            [[datetime.date(2020, 1, 1)] * 3] * 24 if good.ndim == 2 else [datetime.date(2020, 1, 1)] * 24,
            False,
        ),
        "None": (None, False),
        "text": ("abc", False),
        "dict": ({"a": [1.0]}, False),
        "empty list": ([], False),
        "ragged": ([[1.0], [1.0, 2.0]], False),
        "generator": ((row for row in good), False),
        "set": ({1.0, 2.0}, False),
        "no rows": (good[:0], False),
        "one row": (good[:1], False),
        "no columns": (good[:, :0] if good.ndim == 2 else good[:, None][:, :0], False),
        "one axis more": (good[None], False),
        "two axes more": (good[None, None], False),
        "one axis less": (good.ravel()[:24], False),
        "a number": (3.0, False),
        "with None": (np.where(good > 2, None, good), False),
        "with text": (np.where(good > 1, "a", good.astype(object)), False),
        "bytes": (good.tobytes(), False),
    }
    return found | _frames(good)


def _frames(good: np.ndarray) -> dict[str, tuple[Any, bool]]:
    found: dict[str, tuple[Any, bool]] = {}
    names = list("abc")
    for module in ("pandas", "polars"):
        try:
            library = __import__(module)
        except ImportError:
            continue
        if good.ndim == 1:
            found[module] = library.Series(good), True
            continue
        if good.shape != X.shape:
            continue
        columns = {name: good[:, i] for i, name in enumerate(names)}
        found[f"{module} missing"] = library.DataFrame(columns | {"b": [None, *good[1:, 1]]}), False
        found[f"{module} text"] = library.DataFrame(columns | {"b": ["x"] * 24}), False
        days = (np.datetime64("2020-01-01") + np.arange(24)).astype("datetime64[us]")
        found[f"{module} dates"] = library.DataFrame(columns | {"b": days}), False
        found[f"{module} durations"] = library.DataFrame(columns | {"b": days - days[0]}), False
    try:
        import scipy.sparse

        found["sparse"] = scipy.sparse.csr_matrix(good), False
    except ValueError:
        pass
    return found


def regressor(**settings: Any) -> dg.GPRegressor:
    plain = {"kernel": KERNEL, "noise": 0.01, "learn": False, "n_samples": 3, "random_state": 0}
    return dg.GPRegressor(**plain | settings)
