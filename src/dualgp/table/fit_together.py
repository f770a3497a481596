"""`dualgp fit` on many processes: each reads its own rows, all solve together, the first one writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from dualgp._arrays import in_wide
from dualgp._random import generator, subkey
from dualgp.checkpoints import Checkpoint
from dualgp.columns.encoding import Encoding
from dualgp.columns.types import Number
from dualgp.gp import GaussianProcess
from dualgp.learning import Learned, Neighbours, learn
from dualgp.operators import policy
from dualgp.operators.layout import Layout, make_layout
from dualgp.sklearn.conditioning import Conditioning, one_if_constant
from dualgp.sklearn.estimator import GPRegressor
from dualgp.sklearn.preparation import model_of
from dualgp.sklearn.units import Units
from dualgp.solvers import Auto, Result
from dualgp.solvers.stopping import Deadline
from dualgp.table.model import TableModel
from dualgp.table.row_files import RowFile, open_rows

LEARN_ROWS = 50_000  # random rows, of all processes, that hyperparameters are learned from: 25 for each term
LEARN_SHARE = 0.3  # times a time limit: the solve of all rows has the rest


class Share:
    """The rows of a process, as an array of n rows that `condition` may slice."""

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
    n_samples: int = 16,
    tol: float | None = None,
    max_seconds: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    random_state: int = 0,
    verbose: int = 0,
) -> TableModel:
    """The model of a .npy or .parquet file of numbers, by all processes together; each must make this call.

    Settings as for `GPRegressor`. Scales come from all rows, hyperparameters from 50,000 random ones of all processes
    (by `Neighbours`: learning from all rows is for one process), the posterior from all rows again.
    """
    deadline, file = Deadline(max_seconds), open_rows(path)
    inputs = file.check(target, drop)
    layout = make_layout(file.num_rows, devices)
    x, y = _read(file, layout.own, inputs, target)
    regressor = GPRegressor(n_samples=n_samples, tol=tol, max_seconds=max_seconds, random_state=random_state)
    regressor.n_features_in_ = len(inputs)
    (x_offset, x_scale), (y_offset, y_scale) = (_scales(array, layout.n) for array in (x, y[:, None]))
    regressor.encoding_, regressor.decisions_ = None, ()
    regressor.units_ = Units(x_offset, float(y_offset[0]), float(y_scale[0]))
    x = regressor.units_.inputs(x)
    targets = regressor.units_.targets(x, y)
    own_x, own_targets = (Share(array, layout.own, layout.n) for array in (x, targets))
    run = {"solver": Auto(tol=tol), "num_samples": n_samples, "mesh": layout.mesh, "progress": bool(verbose)}
    condition = Conditioning(own_x, own_targets, jax.random.key(random_state), deadline, run)
    learned = _learn(regressor._start(model_of(x_scale)), condition, layout, checkpoint, (inputs, target))
    posterior = condition(learned.model, checkpoint=None if checkpoint is None else f"{checkpoint}.solve")
    regressor.message_, regressor.interrupted_ = learned.message, learned.interrupted
    regressor.finished_ = learned.finished and posterior.solution.result is Result.CONVERGED
    regressor._conclude(posterior, condition, checkpoint)
    encoding = Encoding(tuple(Number(name) for name in inputs), target)
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
    largest = np.max(_gather(np.max(np.abs(own), axis=0, initial=0.0)), axis=0)
    std = one_if_constant(std, own, largest)
    return mean.astype(np.float32).astype(np.float64), std.astype(np.float32).astype(np.float64)


def _learn(
    start: GaussianProcess, condition: Conditioning, layout: Layout, path: str | os.PathLike | None, names: Any
) -> Learned:
    """Hyperparameters from a sample of all rows, the same in every process; from the checkpoint where it has them."""
    x, y, key = condition.x.array, condition.targets.array, subkey(condition.key, "learn")
    file = None
    if path is not None:
        sums = [layout.summarise(layout.place_own(array)) for array in (x, y[:, None])]
        file = Checkpoint(path, (layout.n, names, sums, key))
        if (saved := file.load(start)) is not None:
            return Learned(saved[0], None, (), saved[1]["message"])
    method = Neighbours() if layout.n > policy.LEARN_EXACTLY_UP_TO else "auto"
    deadline, rows = condition.deadline.share(LEARN_SHARE), min(LEARN_ROWS, layout.n)
    learned = learn(start, *_sample(x, y, layout, key), key=key, method=method, max_seconds=deadline)
    model = multihost_utils.broadcast_one_to_all(learned.model) if jax.process_count() > 1 else learned.model
    model = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model)
    choice = f" These were {rows:,} random rows of {layout.n:,}." if rows < layout.n else ""
    learned = replace(learned, model=model, message=learned.message + choice)
    if file is not None and learned.finished:
        file.save(model, {"message": learned.message})
    return learned


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
