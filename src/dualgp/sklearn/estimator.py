"""GPRegressor: the scikit-learn estimator."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dualgp._random import subkey
from dualgp.columns.encoding import Encoding, make_encoding
from dualgp.columns.tables import as_table
from dualgp.kernels.translate import translated
from dualgp.sklearn.callbacks import CallbackSupportMixin, Watcher, with_callbacks
from dualgp.sklearn.conditioning import Conditioning, validated
from dualgp.sklearn.counting import count_rows, without_zeros
from dualgp.sklearn.fitting import Fitting, random_key, shown
from dualgp.sklearn.frames import check_frame, needs_encoding, raw_columns
from dualgp.sklearn.outputs import UnitsOfMany, main_direction
from dualgp.sklearn.preparation import Warps, find_floor, find_trend, find_warp, make_units, standard_model
from dualgp.sklearn.warps import Warp
from dualgp.solvers import Result
from dualgp.solvers.stopping import Deadline


class GPRegressor(Fitting, CallbackSupportMixin, RegressorMixin, BaseEstimator):
    """Gaussian process regression on all of the data.

    Inputs and targets may have any scale. Up to 4,096 rows the answer is exact. Beyond, predictions have a far field,
    by iterations on all rows or on some, and a near field of the nearest of all rows.

    Parameters
    ----------
    kernel : a dualgp or scikit-learn kernel, or None
        In the units of the data: `Matern32(lengthscale=3.0)` means 3 units of X. None compares stationary kernels with
        a lengthscale for each column, and takes the one that predicts best.
    noise : float, "input-dependent" or None
        The variance of the noise, in squared units of y. It stays as given; None means that it is learned, one number
        for all points. "input-dependent" learns a function of the inputs.
    solver : "auto" or a solver such as `dualgp.SDD()`
    learn : bool
        Whether to learn the kernel's parameters (and the noise, and a constant mean) from the data.
    n_samples : int
        Posterior functions, as `sample_y` and `sample_functions` return. They also make standard deviations sharper.
    tol : float or None
        The relative residual that solver="auto" stops at. None stops when another pass over the data no longer
        improves predictions of rows kept aside.
    max_seconds : float or None
        Stop about then with what there is. Error bars of an unfinished solve are wider, not narrower.
    checkpoint : path or None
        A file to save progress to, and others that begin with its name. The same fit, with the same `random_state`
        (None means 0 here), resumes from it; it is deleted when the fit is complete.
    devices : int, "all", list of JAX devices, `jax.sharding.Mesh` or None
        Shard the rows over these devices; None is the first one alone.
    random_state : int, RandomState or None
        The randomness of learning, solver and functions. Pass an integer for reproducible results.
    verbose : int
        1 shows progress, 2 also prints a report.
    target_transform : "auto", "none", "log", "sqrt" or "yeo-johnson"
        The monotone function of y that is modelled; predictions come back in units of y. "auto" takes the most likely
        one if kernel and noise are left open, and none otherwise.
    trend : "auto", True or False
        Whether a linear trend is subtracted first: "auto" decides by rows that the trend was not fitted to.
    robust : bool
        Whether to expect outliers: rows that are far from what others say are not learned from and count less.

    X may be a pandas or polars frame with text, categories, dates and missing values, which are encoded as on the
    command line. Rows that are copies of others count once if they are few, otherwise as often as they occur.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel in the units of the data (of the transformed y, where there is a transform).
    noise_ : float
        The variance of the noise, in these units squared, of a row of weight 1; if it depends on the inputs, the
        geometric mean over the rows. Several outputs have an array of these, as of `mean_`; the kernel is then in
        squared standard deviations of the outputs, unless parameters are given.
    mean_ : float
        The constant that predictions return to far from the data.
    lengthscale_ : array
        One for each input, in its units, if the kernel has lengthscales.
    posterior_ : Posterior
        For centred inputs and standardised targets: `X - X_offset_` and `(z - y_offset_) / y_scale_` less the
        trend, where z = warp_(y). Inputs are centred where the kernel depends on differences only.
    noise_field_ : Posterior or None
        The logarithm of the noise relative to `noise_` at centred inputs, if it depends on them.
    units_ : Units
        The scales above, with the slopes of the trend.
    encoding_ : Encoding or None
        How the columns of a frame become inputs.
    finished_ : bool
        False if a limit or Ctrl-C ended the fit early.
    validation_ : Score or None
        RMSE, log density and coverage of the 90 % band of rows kept aside during the solve, in the units of y; None up
        to 4,096 rows, and if y was transformed.
    message_ : str
        A summary of the fit; `decisions_` has sentences about y. See also `print(regressor.report())`.
    """

    def __init__(
        self,
        kernel=None,
        *,
        noise=None,
        solver="auto",
        learn=True,
        n_samples=16,
        tol=None,
        max_seconds=None,
        checkpoint=None,
        devices=None,
        random_state=None,
        verbose=0,
        target_transform="auto",
        trend="auto",
        robust=False,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.solver = solver
        self.learn = learn
        self.n_samples = n_samples
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.devices = devices
        self.random_state = random_state
        self.verbose = verbose
        self.target_transform = target_transform
        self.trend = trend
        self.robust = robust

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GPRegressor:
        """Learn from (n, d) inputs, or a frame of n rows, and (n,) or (n, k) targets, and condition on all of them.

        `sample_weight` (n,): a row of weight 2 counts like two rows, its noise is half of `noise_`; a row of weight 0
        is left out.
        """
        if needs_encoding(X):
            return self.fit_table(as_table(X), check_frame(X, y), sample_weight=sample_weight)
        deadline = Deadline(self.max_seconds)
        X, y = validated(self, X, y)
        some, weights, zeros = without_zeros(sample_weight, len(y))
        X, y = (X, y) if some.all() else (X[some], y[some])
        self.encoding_: Encoding | None = None
        rows = count_rows(X.T, y, weights)
        X, y = rows.of(X), rows.of(y)
        said = (*filter(None, [zeros]), *rows.said)
        warp = find_warp(self.target_transform, X, y, None, self._is_free)
        return self._fit(X, y, warp, deadline, rows.weights, said)

    def fit_table(
        self, table: Any, y: np.ndarray, encoding: Encoding | None = None, *, sample_weight: Any = None
    ) -> GPRegressor:
        """The same for a table of pyarrow, with an encoding made before where there is one."""
        deadline = Deadline(self.max_seconds)
        some, weights, zeros = without_zeros(sample_weight, len(y))
        table, y = (table, y) if some.all() else (table.filter(some), y[some])
        made = make_encoding(table) if encoding is None else encoding
        rows = count_rows(raw_columns(table, made), y, weights)
        if not rows.kept.all():
            table, y = table.filter(rows.kept), y[rows.kept]
            made = make_encoding(table) if encoding is None else encoding  # medians are those of different rows
        self.encoding_, X = made.fit(table, main_direction(y))
        warp, chosen = find_warp(self.target_transform, X, y, self._widths, self._is_free)
        if isinstance(warp, Warp) and warp.kind != "none":  # effects on the transformed target
            self.encoding_, X = made.fit(table, warp(y))
        self.n_features_in_, self.feature_names_in_ = len(made.names), np.array(made.names, dtype=object)
        return self._fit(X, y, (warp, chosen), deadline, rows.weights, (*filter(None, [zeros]), *rows.said))

    def _fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        warp: tuple[Warps, str],
        deadline: Deadline,
        weights: np.ndarray | None,
        counted: tuple[str, ...],
    ) -> GPRegressor:
        # Inputs are centred only if the kernel depends on differences; counts must not be.
        centres = self.kernel is None or translated(self.kernel, self.learn)[0].is_stationary
        self._check_noise(y)
        settings, start = self._settings(len(y)), standard_model(X, self._widths)
        own_scales = self.learn and not self._has_given_noise
        units = make_units(X, y, warp[0], centres, own_scales, bool(self.robust))
        x, floor = units.inputs(X), find_floor(units, y)
        self.units_, trend = find_trend(self.trend, start, units, x, units.targets(x, y), floor, self._is_free)
        factors = None if weights is None else 1.0 / weights
        condition = Conditioning(x, self.units_.targets(x, y), self._key(), deadline, settings, floor, factors)
        watcher = Watcher(self, X, y) if hasattr(self, "_init_callback_context") else None
        model, self.interrupted_, self.noise_field_ = self._start(start), False, None
        fit = self._take_as_given if not self.learn else self._learn
        posterior, condition = fit(model, condition, watcher, start.kernel)
        self.decisions_ = tuple(filter(None, [warp[1], trend, *counted]))
        self._conclude(posterior, condition, self.checkpoint)
        if watcher:
            watcher.end()
        if self.verbose > 1:
            print(self.report())
        return self

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> GPRegressor:
        """Condition on further data, starting from the last solve. Learned parameters and scales stay."""
        check_is_fitted(self)
        if self.encoding_ is None:
            X, y = validated(self, X, y, reset=False)
            x = self.units_.inputs(X)
        else:
            y = check_frame(X, y, reset=False)
            x = self._ready(X)[1]
        if np.shape(y)[1:] != np.shape(self.y_scale_):
            raise ValueError(f"y has shape {np.shape(y)}, but the model {self.posterior_.num_outputs} output(s).")
        some, weights, _ = without_zeros(sample_weight, len(y))
        x, targets = x[some], self.units_.targets(x, y)[some]
        targets, noise = self._weighed(x, targets, weights)
        posterior = self.posterior_.update(
            x,
            targets,
            noise=noise,
            key=subkey(random_key(self.random_state), self.posterior_.n),
            solver=self._solver(),
            max_seconds=self.max_seconds,
            progress=bool(self.verbose),
        )
        self.finished_ = posterior.solution.result is Result.CONVERGED
        self._keep(posterior)
        return self

    def output(self, number: int) -> GPRegressor:
        """The fitted regressor of one of several outputs, numbered from 0."""
        check_is_fitted(self)
        if not isinstance(self.units_, UnitsOfMany):
            if number:
                raise IndexError(f"There is one output, number 0, got {number}.")
            return self
        posterior = self.posterior_.output(number)
        posterior = replace(posterior, solution=replace(posterior.solution, validation=None))  # it was for all outputs
        one = copy.copy(self)
        one.units_ = self.units_.each[number]
        one._keep(posterior)
        return one

    def report(self) -> str:
        """What was done and how good it is, in plain words and in the units of the data."""
        check_is_fitted(self)
        model = f"Kernel {self.kernel_!r}, noise variance {shown(self.noise_)}, mean {shown(self.mean_)}."
        said = (self.message_, *self.decisions_, *self.report_solution())
        return "\n".join([self.posterior_.report_size(), model, *said])
