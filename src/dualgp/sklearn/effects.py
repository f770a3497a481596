"""Importances and partial dependence of columns of the table, whatever inputs they became."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dualgp.columns.types import Coded, Number, Time
from dualgp.sklearn.estimator import GPRegressor

ROWS, GRID, MOST_VALUES = 300, 25, 20  # rows used, points of a number, and values of text
SHUFFLES = 3


class Effect(NamedTuple):
    """The average prediction with a column set to each of `values`, and its quarter points over the rows."""

    values: Any
    mean: Float[np.ndarray, " values"]
    low: Float[np.ndarray, " values"]
    high: Float[np.ndarray, " values"]
    is_text: bool


def places_of(regressor: GPRegressor) -> dict[str, slice]:
    """The inputs that each column became."""
    if regressor.encoding_ is not None:
        return regressor.encoding_.places
    names = getattr(regressor, "feature_names_in_", [f"x{i + 1}" for i in range(regressor.n_features_in_)])
    return {str(name): slice(i, i + 1) for i, name in enumerate(names)}


def importances(regressor: GPRegressor, X: Any = None, y: Any = None) -> dict[str, float]:
    """How much the RMSE grows when a column is shuffled, for given rows or else for the fitted ones.

    In units of y, the largest first. Columns with the same information as others have smaller importances.
    """
    x, y = _rows(regressor, X, y)
    rng = np.random.default_rng(0)
    truth = _rmse(y, regressor.mean_at(x))
    found = {}
    for name, place in places_of(regressor).items():
        total = 0.0
        for _ in range(SHUFFLES):
            shuffled = x.copy()
            shuffled[:, place] = x[rng.permutation(len(x)), place]
            total += _rmse(y, regressor.mean_at(shuffled)) - truth
        found[name] = total / SHUFFLES
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def effect(regressor: GPRegressor, column: str) -> Effect:
    """The partial dependence of the prediction on a column, over some of the fitted rows."""
    places = places_of(regressor)
    if column not in places:
        raise ValueError(f"There is no column {column!r}. The model has {', '.join(map(repr, places))}.")
    x, place = _rows(regressor, None, None)[0], places[column]
    values, inputs, is_text = _grid(regressor, column, place)
    rows = np.repeat(x[: ROWS // 3][None], len(inputs), axis=0)
    rows[:, :, place] = (inputs - regressor.X_offset_[place])[:, None]
    found = regressor.mean_at(rows.reshape(-1, x.shape[1])).reshape(rows.shape[:2])
    low, high = np.quantile(found, [0.25, 0.75], axis=1)
    return Effect(values, found.mean(axis=1), low, high, is_text)


def _grid(regressor: GPRegressor, name: str, place: slice) -> tuple[Any, Float[np.ndarray, "values k"], bool]:
    """Values of a column, their inputs, and whether they are categories."""
    fitted = np.asarray(regressor.posterior_.gathered().x, np.float64)[:, place] + regressor.X_offset_[place]
    column = None
    if regressor.encoding_ is not None:
        column = next(column for column in regressor.encoding_.columns if column.name == name)
    if isinstance(column, Coded):
        import pyarrow

        values = list(column.categories)
        inputs = column.encode(pyarrow.chunked_array([pyarrow.array(values)]))
        order = np.argsort(inputs[:, 0], kind="stable") if len(values) > MOST_VALUES else np.arange(len(values))
        chosen = order[np.unique(np.linspace(0, len(order) - 1, MOST_VALUES).round().astype(int))]
        return [values[i] for i in chosen], inputs[chosen], True
    along = np.unique(np.quantile(fitted[:, 0], np.linspace(0.01, 0.99, GRID), method="nearest"))
    if isinstance(column, Time) and column.has_trend:
        import pyarrow

        times = pyarrow.array((along * 86_400e6).astype(np.int64)).cast(pyarrow.timestamp("us"))
        return times.to_numpy(zero_copy_only=False), column.encode(pyarrow.chunked_array([times])), False
    nearest = np.abs(fitted[:, :1] - along).argmin(axis=0)
    scale = column.scale if isinstance(column, Number) else None
    return along if scale is None else scale.inverse(along), fitted[nearest], False


def _rows(regressor: GPRegressor, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Centred inputs and targets of some rows."""
    if regressor.posterior_.num_outputs > 1:
        raise ValueError("The model has several outputs. Ask about one of them: regressor.output(0), say.")
    if X is not None:
        x, y = regressor.inputs_of(X), np.asarray(y, np.float64)
    else:
        posterior = regressor.posterior_.gathered()
        x = np.asarray(posterior.x, np.float64)
        values = np.asarray(posterior.targets[:, 0], np.float64) + float(posterior.model.mean)
        y = regressor.units_.outputs(values, x)
    some = np.random.default_rng(0).permutation(len(x))[:ROWS]
    return np.asarray(x[some], np.float64), y[some]


def _rmse(y: np.ndarray, mean: np.ndarray) -> float:
    return float(np.sqrt(np.mean((y - mean) ** 2)))
