"""A regressor together with the table it was fitted to: what the command line writes and reads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from dualgp import metrics
from dualgp.data.encoding import Encoding, Missing, complete_rows, make_encoding
from dualgp.data.smiles import SmilesEncoding
from dualgp.data.tables import as_table
from dualgp.estimator import GPRegressor
from dualgp.kernels import Tanimoto

NINETY = NormalDist().inv_cdf(0.95)  # standard deviations from the mean to either end of the central 90 %
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

    def x(self, source: Any) -> np.ndarray:
        """The inputs of a table, with a warning for what the model has never seen."""
        table = self.table(source)
        x = self.encoding.x(table, getattr(self.regressor, "lengthscale_", None))
        for sentence in self.encoding.unseen(table):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return x

    def predict(self, table: Any) -> dict[str, np.ndarray]:
        """`mean` and `std` of new observations, and the 5 % and 95 % points of their distribution, `q05` and `q95`."""
        x = self.x(table)
        mean, std = np.full((2, len(x)), np.nan)
        if (known := np.isfinite(x).all(axis=1)).any():  # a molecule that cannot be read is not known
            mean[known], std[known] = self.regressor.predict(x[known], return_std=True)
        return {"mean": mean, "std": std, "q05": mean - NINETY * std, "q95": mean + NINETY * std}

    def sample(self, table: Any, n_samples: int, random_state: int = 0) -> dict[str, np.ndarray]:
        """Posterior functions at the rows of a table, without noise: `f1`, `f2`, ..."""
        functions = self.regressor.sample_functions()
        count = self.regressor.posterior_.num_samples
        if n_samples > count:
            raise ValueError(f"This model has {count} posterior functions, {n_samples} were asked for. Fit with more.")
        which = np.random.default_rng(random_state).choice(count, n_samples, replace=False)
        x = self.x(table)
        values = np.full((n_samples, len(x)), np.nan)
        if (known := np.isfinite(x).all(axis=1)).any():
            values[:, known] = functions(x[known])[which]
        return {f"f{i + 1}": row for i, row in enumerate(values)}

    def evaluate(self, table: Any) -> dict[str, dict[str, float]]:
        """RMSE, NLL, coverage of the 90 % band and CRPS on a table with targets, beside two simple predictors."""
        table = self.table(table)
        table = table.filter(complete_rows(table, self.encoding))
        if not table.num_rows:
            raise ValueError(f"No row has a value of {self.encoding.target!r} and of every input to compare with.")
        x, y = self.x(table), self.encoding.y(table)
        posterior = self.regressor.posterior_
        x_fitted = np.asarray(posterior.gathered().x, np.float64) + self.regressor.X_offset_
        y_fitted = fitted_targets(self.regressor)
        return {
            "dualgp": scores(y, *self.regressor.predict(x, return_std=True)),
            "ridge regression": scores(y, *_ridge(x_fitted, y_fitted, x)),
            "mean of the data": scores(y, np.full(len(y), y_fitted.mean()), np.full(len(y), y_fitted.std())),
        }


def fit_table(
    table: Any,
    target: str,
    *,
    drop: Sequence[str] = (),
    missing: Missing = "fill",
    encoding: Encoding | SmilesEncoding | None = None,
    **settings: Any,
) -> TableModel:
    """Fit a `GPRegressor` with these settings to a table: every column but the target is an input unless dropped.

    `missing`: numbers that are missing are filled with the median ("fill", and an input says where), their rows dropped
    ("drop") or refused ("error"). `encoding`: one made before, by `data.encoding.make_encoding`, or a
    `data.smiles.SmilesEncoding` for molecules: then the kernel is Tanimoto unless another is given.
    """
    table = as_table(table)
    encoding = make_encoding(table, target, drop, missing) if encoding is None else encoding
    whole, table = table.num_rows, table.filter(complete_rows(table, encoding))
    if not table.num_rows:
        raise ValueError(f"No row is complete: every one lacks {target!r} or, with missing='drop', an input.")
    if table.num_rows < whole:
        note = (
            f"{whole - table.num_rows:,} of {whole:,} rows were left out because a value is missing or cannot be read."
        )
        encoding = replace(encoding, notes=(*encoding.notes, note))
    if isinstance(encoding, SmilesEncoding):
        settings = {"kernel": Tanimoto()} | settings
    return TableModel(encoding, GPRegressor(**settings).fit(encoding.x(table), encoding.y(table)))


def fitted_targets(regressor: GPRegressor) -> np.ndarray:
    """The y that it was fitted to."""
    posterior = regressor.posterior_
    return regressor._outputs(np.asarray(posterior.gathered().targets[:, 0], np.float64) + float(posterior.model.mean))


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """What `evaluate` says of a prediction."""
    return {
        "rmse": metrics.rmse(y, mean),
        "nll": metrics.nll(y, mean, std),
        "coverage90": metrics.coverage(y, mean, std, 0.9),
        "crps": metrics.crps(y, mean, std),
    }


def readable(value: float, digits: int = 4) -> str:
    """A number with so many digits, written out unless it is very large or very small."""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{places}f}"


def _ridge(x: np.ndarray, y: np.ndarray, x_new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RidgeCV(RIDGE)).fit(x, y)
    spread = max(float(np.std(y - model.predict(x))), 1e-12)
    return model.predict(x_new), np.full(len(x_new), spread)
