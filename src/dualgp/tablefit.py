"""`dualgp fit` on many processes: each reads its own rows, all solve together, the first one writes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from dualgp._arrays import in_wide
from dualgp._random import generator, subkeys
from dualgp.checkpoints import Checkpoint
from dualgp.data.encoding import Column, Encoding
from dualgp.data.shares import RowFile, open_rows
from dualgp.estimator import GPRegressor
from dualgp.gp import GaussianProcess
from dualgp.learning import Neighbours, learn
from dualgp.operators import policy
from dualgp.operators.layout import Layout, make_layout
from dualgp.solvers import Auto, Result
from dualgp.tablemodel import TableModel

LEARN_ROWS = 50_000  # random rows, of all processes, that hyperparameters are learned from


class Share:
    """Some rows of an array of n: what a process has of the whole, for `condition` to slice."""

    def __init__(self, array: np.ndarray, rows: slice, n: int) -> None:
        self.array, self.rows, self.shape, self.dtype = array, rows, (n, *array.shape[1:]), array.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        if rows != self.rows:
            raise IndexError(f"This process has rows {self.rows.start} to {self.rows.stop}, not {rows}.")
        return self.array


@in_wide
def fit_share(
    path: str | os.PathLike,
    target: str,
    *,
    drop: Sequence[str] = (),
    devices: Any = "all",
    n_samples: int = 64,
    tol: float = 1e-2,
    max_seconds: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    random_state: int = 0,
    verbose: int = 0,
) -> TableModel:
    """The model of a .npy or .parquet file of numbers, by all processes together; each must make this call.

    Settings as for `GPRegressor`. Scales come from all rows, hyperparameters from 50,000 random ones of all processes
    (by `Neighbours`: learning from all rows is for one process), the posterior from all rows again.
    """
    began, file = time.perf_counter(), open_rows(path)
    inputs = file.check(target, drop)
    layout = make_layout(file.num_rows, devices)
    x, y = _read(file, layout.own, inputs, target)
    settings = {"n_samples": n_samples, "tol": tol, "max_seconds": max_seconds, "random_state": random_state}
    regressor = GPRegressor(**settings)
    regressor.n_features_in_ = len(inputs)
    (regressor.X_offset_, X_scale), (y_offset, y_scale) = (_scales(array, layout.n) for array in (x, y[:, None]))
    regressor.y_offset_, regressor.y_scale_ = float(y_offset[0]), float(y_scale[0])
    x, targets = regressor._inputs(x), (y - regressor.y_offset_) / regressor.y_scale_
    key = jax.random.key(random_state)
    learn_key, condition_key = subkeys(key, 2)
    model, regressor.message_ = _learned(
        regressor._start(X_scale), x, targets, layout, learn_key, checkpoint, (inputs, target)
    )
    left = None if max_seconds is None else max(1e-3, max_seconds - (time.perf_counter() - began))
    posterior = model.condition(
        Share(x, layout.own, layout.n),
        Share(targets, layout.own, layout.n),
        mesh=layout.mesh,
        solver=Auto(tol=tol),
        num_samples=n_samples,
        key=condition_key,
        max_seconds=left,
        checkpoint=None if checkpoint is None else f"{checkpoint}.solve",
        progress=bool(verbose),
    )
    regressor.finished_ = posterior.solution.result is Result.CONVERGED
    regressor._keep(posterior)
    encoding = Encoding(tuple(Column(name, "number") for name in inputs), target)
    return TableModel(encoding, regressor)


def _read(file: RowFile, rows: slice, inputs: Sequence[str], target: str) -> tuple[np.ndarray, np.ndarray]:
    numbers = file.numbers(rows, [*inputs, target])
    return np.ascontiguousarray(numbers[:, :-1]), numbers[:, -1].astype(np.float64)


def _scales(own: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column over all processes; 1 where it is constant up to rounding.

    In float32, so that they do not depend on the order of the sums, and that on the number of processes.
    """
    mean = _sum(own.sum(axis=0, dtype=np.float64)) / n
    std = np.sqrt(_sum(np.sum((own - mean) ** 2, axis=0)) / n)
    size = np.max(_gather(np.max(np.abs(own), axis=0, initial=0.0)), axis=0)
    std = np.where(std > 16 * np.finfo(own.dtype).eps * size, std, 1.0)
    return mean.astype(np.float32).astype(np.float64), std.astype(np.float32).astype(np.float64)


def _learned(
    start: GaussianProcess,
    x: np.ndarray,
    y: np.ndarray,
    layout: Layout,
    key: jax.Array,
    path: str | os.PathLike | None,
    names: Any,
) -> tuple[GaussianProcess, str]:
    """Hyperparameters from a sample of all rows, the same in every process; from the checkpoint where it has them."""
    file = None
    if path is not None:
        sums = [layout.summarise(layout.place_own(array)) for array in (x, y[:, None])]
        file = Checkpoint(path, (layout.n, names, sums, key))
        if (saved := file.load(start)) is not None:
            return saved[0], saved[1]["message"]
    method = Neighbours() if layout.n > policy.LEARN_EXACTLY_UP_TO else "auto"
    learned = learn(start, *_sample(x, y, layout, key), key=key, method=method)
    model = multihost_utils.broadcast_one_to_all(learned.model) if jax.process_count() > 1 else learned.model
    model = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model)
    rows = min(LEARN_ROWS, layout.n)
    message = (
        f"{learned.message} These were {rows:,} random rows of {layout.n:,}." if rows < layout.n else learned.message
    )
    if file is not None:
        file.save(model, {"message": message})
    return model, message


def _sample(x: np.ndarray, y: np.ndarray, layout: Layout, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """LEARN_ROWS random rows of all, in every process."""
    chosen = np.sort(generator(key).choice(layout.n, min(LEARN_ROWS, layout.n), replace=False))
    here = (chosen >= layout.own.start) & (chosen < layout.own.stop)
    whole = np.zeros((len(chosen), x.shape[1] + 1))
    whole[here] = np.column_stack([x, y])[chosen[here] - layout.own.start]
    whole = _sum(whole)
    return whole[:, :-1].astype(x.dtype), whole[:, -1]


def _sum(array: np.ndarray) -> np.ndarray:
    return _gather(array).sum(axis=0)


def _gather(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, stacked."""
    return np.asarray(multihost_utils.process_allgather(array)) if jax.process_count() > 1 else array[None]
