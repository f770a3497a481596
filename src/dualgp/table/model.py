"""A regressor together with the table it was fitted to: what the command line writes and reads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dualgp.columns.encoding import Encoding, Missing, Target, complete_rows, make_encoding, names_of
from dualgp.columns.tables import as_table, numbers_of
from dualgp.kernels import Tanimoto
from dualgp.posterior.calibration import calibrate
from dualgp.sklearn.estimator import GPRegressor
from dualgp.sklearn.outputs import Predictions
from dualgp.sklearn.warps import Prediction, Warp, scores
from dualgp.table.smiles import SmilesEncoding

BAND = (0.05, 0.95)  # the ends of the central 90 %
# Fitted rows that are predicted from all others for the end of a fit: of 317,346 rows all of them took two minutes.
ROWS_CHECKED = 8192
RIDGE = np.logspace(-4, 4, 17)  # penalties to choose from


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted `GPRegressor` that takes tables: files, data frames or dicts of columns.

    model = dg.load("model.dgp")
    model.predict("new.csv")["mean"]
    """

    encoding: Encoding | SmilesEncoding
    regressor: GPRegressor

    def table(self, source: Any) -> Any:
        """A file, a data frame or a dict of columns, read as the one that it was fitted to."""
        return as_table(source, self.encoding.text)

    def predict(self, source: Any, quantiles: Sequence[float] = BAND) -> dict[str, np.ndarray]:
        """`mean`, `median` and `std` of new observations, and points of their distribution: `q05` and `q95`, say.

        An observation is below the first with probability 0.05. Where the target was transformed (`log`), the median
        is not the mean: as many observations are above it as below it. With several targets each has its own columns,
        `price_mean` and so on.
        """
        names = ("mean", "median", "std", *quantile_names(quantiles))
        X, known = self._readable(self.table(source))
        found = {first + name: np.full(len(known), np.nan) for first in self._prefixes for name in names}
        if known.any():
            distribution = self.regressor.distribution(X)
            each = distribution.each if isinstance(distribution, Predictions) else (distribution,)
            for first, one in zip(self._prefixes, each, strict=True):
                mean, std = one.moments()
                for name, column in zip(names, [mean, one.median, std, *one.quantiles(quantiles).T], strict=True):
                    found[first + name][known] = column
        return found

    def sample(self, source: Any, n_samples: int, random_state: int = 0) -> dict[str, np.ndarray]:
        """Posterior functions at the rows of a table, without noise: `f1`, `f2`, ... of each target."""
        count = self.regressor.posterior_.num_samples
        if n_samples > count:
            raise ValueError(f"This model has {count} posterior functions, {n_samples} were asked for. Fit with more.")
        which = np.random.default_rng(random_state).choice(count, n_samples, replace=False)
        X, known = self._readable(self.table(source))
        prefixes = self._prefixes
        values = np.full((n_samples, len(known), len(prefixes)), np.nan)
        if known.any():
            drawn = self.regressor.sample_functions()(X)[which]
            values[:, known] = drawn.reshape(*drawn.shape[:2], -1)
        return {f"{first}f{i + 1}": values[i, :, j] for j, first in enumerate(prefixes) for i in range(n_samples)}

    def evaluate(self, source: Any) -> dict[str, dict[str, float]]:
        """RMSE, NLL, coverage of the 90 % band and CRPS on a table with targets, beside two simple predictors."""
        if len(names_of(self.encoding.target)) > 1:
            table, scored = self.table(source), [(one.encoding.target, one) for one in self.outputs()]
            return {f"{name}: {what}": line for name, one in scored for what, line in one.evaluate(table).items()}
        table, y = self.complete(source)
        x_fitted, y_fitted = fitted_data(self.regressor)
        ridge = _ridge(x_fitted, y_fitted, self.encoding.x(table))
        average = Prediction(Warp(), *np.full((2, len(y)), [[y_fitted.mean()], [y_fitted.std()]]))
        ours = self.regressor.distribution(self._readable(table)[0])
        found = {"dualgp": ours, "ridge regression": ridge, "mean of the data": average}
        return {name: scores(y, prediction) for name, prediction in found.items()}

    def outputs(self) -> list[TableModel]:
        """The model of each target by itself."""
        names = names_of(self.encoding.target)
        if len(names) < 2:
            return [self]
        return [
            TableModel(replace(self.encoding, target=name), self.regressor.output(i)) for i, name in enumerate(names)
        ]

    @property
    def _prefixes(self) -> list[str]:
        """The prefixes of the names of predictions."""
        names = names_of(self.encoding.target)
        return [""] if len(names) < 2 else [f"{name}_" for name in names]

    def check(self, held_out: Any = None) -> tuple[Prediction, np.ndarray, str] | None:
        """Predictions of rows that they were made without, the truth, and which rows these are, for one target.

        Without held-out rows each fitted row is predicted from all others, and bands are calibrated by the other half
        of these rows, as nobody learns anything from their own; None if there are no functions to do it.
        """
        regressor, posterior = self.regressor, self.regressor.posterior_
        if held_out is not None:
            table, y = self.complete(held_out)
            return self.distribution(table), y, f"{table.num_rows:,} held-out rows"
        if not (posterior.is_exact or posterior.neighbours) and posterior.num_samples <= 2:
            return None
        x, y = fitted_data(regressor)
        rows = np.sort(np.random.default_rng(0).permutation(len(x))[:ROWS_CHECKED])
        mean, std = posterior.leave_one_out(groups=True, rows=rows)
        y, found = y[rows], cast(Prediction, regressor.units_.prediction(x[rows] - regressor.X_offset_, mean, std))
        return *_checked_by_halves(found, y), "fitted rows, each predicted from all the others"

    def complete(self, source: Any) -> tuple[Any, np.ndarray]:
        """The rows of a table that have a target and all that a prediction needs, and their targets."""
        table = self.table(source)
        table = table.filter(complete_rows(table, self.encoding))
        if not table.num_rows:
            raise ValueError(
                f"No row has a value of {_listed(self.encoding.target)} and of every input to compare with."
            )
        return table, self.encoding.y(table)

    def distribution(self, table: Any) -> Prediction:
        """The distribution of new observations at the rows of a table, all of which must be readable."""
        return self.regressor.distribution(self._readable(table)[0])

    def _readable(self, table: Any) -> tuple[Any, np.ndarray]:
        """The inputs of the regressor for the readable rows, and which rows these are."""
        if self.regressor.encoding_ is not None:
            return table, np.ones(table.num_rows, bool)
        x = self.encoding.x(table)
        for sentence in self.encoding.unseen(table):
            warnings.warn(sentence, UserWarning, stacklevel=4)
        known = np.isfinite(x).all(axis=1)  # a molecule that cannot be read is not known
        return x[known], known


def fit_table(
    table: Any,
    target: str | Sequence[str],
    *,
    weights: str | None = None,
    drop: Sequence[str] = (),
    missing: Missing = "fill",
    encoding: Encoding | SmilesEncoding | None = None,
    **settings: Any,
) -> TableModel:
    """Fit a `GPRegressor` with these settings to a table: every column but the target is an input unless dropped.

    `target`: a column, or several that are predicted together. `weights`: the column of the rows' weights, if any.
    `missing`: numbers that are missing are filled with the median ("fill", and an input says where), their rows dropped
    ("drop") or refused ("error"). `encoding`: one made before, by `columns.encoding.make_encoding`, or a
    `table.smiles.SmilesEncoding` for molecules: then the kernel is Tanimoto unless another is given.
    """
    table, target = as_table(table), target if isinstance(target, str) else tuple(target)
    if encoding is None:
        encoding = make_encoding(table, target, drop if weights is None else (weights, *drop), missing)
    whole, table = table.num_rows, table.filter(complete_rows(table, encoding))
    if not table.num_rows:
        raise ValueError(f"No row is complete: every one lacks {_listed(target)} or, with missing='drop', an input.")
    if table.num_rows < whole:
        note = (
            f"{whole - table.num_rows:,} of {whole:,} rows were left out because a value is missing or cannot be read."
        )
        encoding = replace(encoding, notes=(*encoding.notes, note))
    if isinstance(encoding, SmilesEncoding):
        settings = {"kernel": Tanimoto()} | settings
    regressor, own = GPRegressor(**settings), None if weights is None else numbers_of(table, weights)
    if isinstance(encoding, SmilesEncoding):
        return TableModel(encoding, regressor.fit(encoding.x(table), encoding.y(table), own))
    regressor.fit_table(table, encoding.y(table), encoding, sample_weight=own)
    return TableModel(regressor.encoding_ or encoding, regressor)


def _listed(target: Target) -> str:
    return " or ".join(map(repr, names_of(target)))


def _checked_by_halves(prediction: Prediction, y: np.ndarray) -> tuple[Prediction, np.ndarray]:
    """One half of the predictions with bands from the errors of the other half, if there are enough of those."""
    z = (prediction.warp(y) - prediction.location) / prediction.spread
    own, other = np.array_split(np.random.default_rng(0).permutation(len(y)), 2)
    calibration = calibrate(z[other])
    if calibration.is_gaussian:
        return prediction, y
    own = np.sort(own)
    return Prediction(prediction.warp, prediction.location[own], prediction.spread[own], calibration), y[own]


def fitted_data(regressor: GPRegressor) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and targets that it was fitted to."""
    posterior = regressor.posterior_.gathered()
    x = np.asarray(posterior.x, np.float64)
    values = np.asarray(posterior.targets[:, 0], np.float64) + float(posterior.model.mean)
    return x + regressor.X_offset_, regressor.units_.outputs(values, x)


def quantile_names(quantiles: Sequence[float]) -> list[str]:
    """q05 for 0.05, q5 for 0.5, q025 for 0.025: names that differ, in the order of the quantiles."""
    names = [f"q{100 * level:02.0f}" if round(100 * level, 6) % 1 == 0 else f"q{100 * level:g}" for level in quantiles]
    if len(set(names)) < len(names):
        raise ValueError(f"Quantiles must differ, got {', '.join(map(str, quantiles))}.")
    return names


def _ridge(x: np.ndarray, y: np.ndarray, x_new: np.ndarray) -> Prediction:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RidgeCV(RIDGE)).fit(x, y)
    spread = max(float(np.std(y - model.predict(x))), 1e-12)
    return Prediction(Warp(), model.predict(x_new), np.full(len(x_new), spread))
