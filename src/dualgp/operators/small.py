"""Small systems of equations, one for each of many points. LAPACK solves them on every core while XLA makes the next.

XLA solves a batch on one core and reads every matrix from memory several times: with 256 rows in float64 a point takes
1.4 ms of a core, and 0.28 this way, a third of which computes kernel entries.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import LowLevelCallable
from scipy.linalg import cython_lapack

from dualgp._threads import num_cores


def map_in_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """`map` with `work`, which must not use JAX, in other threads. Items are made in the caller's, as XLA needs."""
    waiting: deque[Future] = deque()
    with ThreadPoolExecutor(num_cores()) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > num_cores():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def solve_each(
    matrices: Float[np.ndarray, "m num num"], columns: Float[np.ndarray, "m num"]
) -> Float[np.ndarray, "m num"]:
    """A^-1 b for each matrix A and its column b; NaN where A is not positive definite."""
    num = columns.shape[1]
    factor, found = np.empty((num, num)), np.array(columns, np.float64)
    lower, size, one, info = ctypes.c_char(b"L"), ctypes.c_int(num), ctypes.c_int(1), ctypes.c_int(0)
    half, order, num_columns, result = (ctypes.addressof(value) for value in (lower, size, one, info))
    posv, at_factor, at_found = _posv(), factor.ctypes.data, found.ctypes.data
    for i, matrix in enumerate(matrices):
        factor[...] = matrix
        posv(half, order, num_columns, at_factor, order, at_found + i * found.strides[0], order, result)
        if info.value:
            found[i] = np.nan
    return found


@cache
def _posv() -> Any:
    """SciPy's LAPACK function dposv, called without holding Python's lock."""
    callable = LowLevelCallable.from_cython(cython_lapack, "dposv")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = pointer(callable.function, callable.signature.encode())
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 8)(address)
