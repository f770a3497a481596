"""Every decision that depends on the size of a problem or on the machine. Other modules ask here.

The comment of a constant has one measured number, on two CPU cores, and the script that measured it.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dualgp._checks import check_count
from dualgp._threads import num_cores
from dualgp._types import AnyArray

# The size ladder, in rows.
LEARN_EXACTLY_UP_TO = 1500  # three starts of the exact likelihood: 4 to 5 s at n = 1,000 (benchmarks/small.py)
SOLVE_EXACTLY_UP_TO = 4096  # a Cholesky factorisation in float64: 23 thousand million operations, 134 MB
DOUBLE_UP_TO = 10_000  # rows up to which float64 inputs are solved in float64: K would take 800 MB
# Below this, block descent takes seconds; the probe for conjugate gradients takes two (benchmarks/solvers.py).
PROBE_FROM = 20_000
# Far weights for all rows: a pass takes at most 9.3 s (benchmarks/scaling.py). Beyond, a subset may be used.
FAR_ALL_UP_TO = 100_000

# Memory: fractions of what this process may use, and bytes.
KEPT_SHARE = 0.25  # for keeping K between products, where that saves time
FACTOR_SHARE = 0.6  # for the Cholesky factor of an exact solution
# Inputs of at most this size are on every device: a step then sends 353 kB at n = 50,000 (benchmarks/devices.py).
REPLICATED_BYTES = 1 << 30

STRETCH_ROWS = 512  # whose pairs `stretch` compares, in 5 ms

# Tile sizes. A tile fits the cache of its core: 2 MB in float32. Several cores share a tile, and synchronise each time:
# 512 rows of n = 50,000 take 12 ms with 2^21 entries on two cores, 15 with 2^19 (benchmarks/rows.py).
TILE_ENTRIES_ON_ONE_CORE, TILE_ENTRIES = 1 << 19, 1 << 21
TILE_ENTRIES_ON_ACCELERATORS = 1 << 24  # 64 MB in float32, which keeps a GPU's cores busy: an estimate, not measured
SMALLEST_TILE, LARGEST_TILE = 256, 1 << 14  # columns
ROW_BLOCK = 512  # rows of a product with all of K
POINT_BLOCK = 1024  # points at which functions are evaluated together
NEAR_ENTRIES = 1 << 20  # entries of all A_NN in memory: 8 MB in float64
SEARCH_ENTRIES = 1 << 24  # kernel entries in memory where all rows are compared to find the nearest: 64 MB

# The near field: numbers of neighbours that are compared on rows kept aside, and the number used without them. It
# matters little if all rows have far weights (benchmarks/near_far.py).
NEIGHBOURS, NEIGHBOURS_OF_MANY = (32, 128), (32, 64, 128, 256)
DEFAULT_NEIGHBOURS = 128
ROWS_ASIDE, ROWS_ASIDE_OF_MANY = 1024, 4096  # whose predictions are scored
FAR_ENTRIES = 4e10  # kernel entries for the far field of a larger table without a limit: about a minute
FAR_TRIAL = 4096  # rows of the trial far field, which is solved exactly
# An update adds rows to the near field alone, up to this fraction of rows without far weights.
UNSOLVED_SHARE = 0.1
# The least gain of a pass on rows kept aside that justifies another: nats of log density, and the ratio of the RMSE.
LEAST_GAIN, LEAST_RATIO = 8e-3, 0.99
# An error of a row kept aside counts as at most so many standard deviations in comparisons. On covtype, by Matern-3/2,
# 5 of 16,000 test rows are 19 to 30 off: such rows alone would decide between kernels and between near fields.
MOST_DEVIATIONS = 10.0
DEFAULT_TOL = 1e-2  # the relative residual: pol's error is the exact GP's from 2e-2 on (experiments/uci_table.py)

# Rounding in float32. The error of K relative to the noise from which distances are computed by differences ("care"):
# 0.9 on bike, where 8.4 passes become 5.9; 0.4 on protein, where nothing changes (benchmarks/precision.py).
LARGE_ERROR = 0.5
LOST_DIGITS = 1e-4  # times a column's standard deviation: a larger loss in float32 is a warning

GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def choose_precision(x: AnyArray, n: int, dtype: Any = None) -> np.dtype:
    """The dtype of a solve with n rows, of which `x` has some. Warns if float32 loses the digits of a column of `x`."""
    if dtype is None:
        dtype = np.float64 if x.dtype == np.float64 and n <= DOUBLE_UP_TO else np.float32
    try:
        dtype = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype must be float32 or float64, got {dtype!r}.") from None
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}.")
    if dtype == np.float32 and x.dtype == np.float64 and len(x):
        lost = np.max(np.abs(x - x.astype(np.float32)), axis=0)
        hurt = np.flatnonzero((lost > LOST_DIGITS * np.std(x, axis=0)) & (np.ptp(x, axis=0) > 0))
        if hurt.size:
            warnings.warn(
                f"Column(s) {hurt[:5].tolist()} of x vary too little around a large value for float32. "
                "Subtract their mean first, or pass dtype=float64.",
                RuntimeWarning,
                stacklevel=5,
            )
    return dtype


def needs_care(n: int, mean_squared_norm: float, variance: float, noise: float) -> bool:
    """Whether float32 rounding of squared distances by matrix products perturbs K by an amount comparable to the noise.

    A squared distance has an error of about eps times the squared norms of its two points, so the perturbation's
    spectral norm is about eps * mean squared norm * sqrt(n) * variance.
    """
    error = float(np.finfo(np.float32).eps) * mean_squared_norm * math.sqrt(n) * variance
    return error > LARGE_ERROR * noise


def stretch(coordinates: np.ndarray) -> float:
    """The typical error of k from rounded coordinates, in units of eps times the largest value of k.

    Coordinates have relative errors of about eps / 4, and distances errors of 0.3 eps times the size of coordinates.
    The derivative of k by the distance is at most the largest value of k, and small beyond a distance of 3.
    """
    squares = (coordinates**2).sum(axis=1)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * coordinates @ coordinates.T, 0.0))
    np.fill_diagonal(apart, np.inf)
    return 0.3 * math.sqrt(squares.mean() * max(float((apart < 3.0).mean()), 1.0 / len(squares)))


def check_functions(num_samples: Any, rows: int, name: str, num_features: int = 4096) -> int:
    """The number of functions; refuse more than fit into memory with feature weights and four columns of rows each."""
    check_count(num_samples, name)
    block = 4.0 * num_features * min(rows, POINT_BLOCK)  # bytes of features at a block of points
    size, most = 8.0 * num_samples * (num_features + 4 * rows) + block, memory_of(jax.local_devices()[0])
    if size > FACTOR_SHARE * most:
        raise ValueError(
            f"{name}={num_samples:.6g} functions with {num_features:.6g} features would take {size / 1e9:,.0f} GB, and "
            f"this process may use {most / 1e9:,.0f}. Ask for fewer: 64 functions know a standard deviation to 9 %."
        )
    return int(num_samples)


def keeps_kernel_matrix(size: int, memory: int | None, most: float, is_cheap: bool) -> bool:
    """Whether K, or a device's shard of it, of `size` bytes is kept in memory between products.

    By default it may take a quarter of `most`, the device's memory, unless products without it are cheap.
    """
    if memory is None:
        memory = 0 if is_cheap else round(KEPT_SHARE * most)
    return size <= memory


def tile_width(rows: int) -> int:
    """Columns of K in a tile with this many rows, on the platform that JAX uses by default."""
    entries = TILE_ENTRIES_ON_ONE_CORE if num_cores() == 1 else TILE_ENTRIES
    entries = entries if jax.default_backend() == "cpu" else TILE_ENTRIES_ON_ACCELERATORS
    return max(SMALLEST_TILE, min(LARGEST_TILE, entries // max(rows, 1)))


def memory_of(device: Any) -> int:
    """Bytes of memory that this process may use on a device: the machine's for a CPU."""
    limit = None if device.platform == "cpu" else (device.memory_stats() or {}).get("bytes_limit")
    return limit or machine_memory()


def padded(n: int) -> int:
    """The number of rows, n or up to an eighth more, that a program for n rows is compiled for: eight in an octave.

    A program takes 0.1 to 1 s to compile and 2 MB to keep, which for few rows is more than all arithmetic. For more
    rows than are solved exactly it is n.
    """
    unit = max(16, 1 << max(n.bit_length() - 4, 0))
    return n + -n % unit if n <= SOLVE_EXACTLY_UP_TO else n


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's where that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return min([total, *_group_limits()])


def _group_limits() -> Iterator[int]:
    """The limits of this process's control group and of those around it, in both versions of Linux's control groups."""
    try:
        groups = OWN_GROUP.read_text().splitlines()
    except OSError:
        return
    for _, controllers, name in (line.split(":", 2) for line in groups):
        if controllers not in ("", "memory"):
            continue
        root, file = (GROUPS, "memory.max") if not controllers else (GROUPS / "memory", "memory.limit_in_bytes")
        group = root / name.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such group here, or "max"
                yield int((folder / file).read_text())
            if folder == root:
                break
