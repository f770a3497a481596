"""Pictures of a posterior (matplotlib). Every function draws into given axes, or new ones, and returns them.

`posterior` may be a `Posterior` or a fitted `GPRegressor`. Pictures of a regressor are in the units of its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dualgp._checks import check_targets
from dualgp.posterior import Posterior
from dualgp.posterior.calibration import GAUSSIAN, Calibration
from dualgp.sklearn.effects import effect, importances
from dualgp.sklearn.estimator import GPRegressor
from dualgp.sklearn.units import Units
from dualgp.sklearn.warps import Warp

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, DARK, GREY = "#4477aa", "#ee6677", "#223355", "0.55"
MOST_POINTS = 2000  # in a scatter plot; more would only make it darker
FEW_VALUES = 10


def convergence(posterior: Any, *, against: str = "passes", axes: Axes | None = None) -> Axes:
    """The residual against passes over the kernel matrix, or against "seconds"; with the certificate on the right.

    The lines are the estimates that steps give for free, for the mean and for the worst sample. The dot is the check
    on fresh rows at the end with its 95 % limit. On the right: the bound on `|mean - exact mean|` from a residual.
    """
    if against not in ("passes", "seconds"):
        raise ValueError(f"against must be 'passes' or 'seconds', got {against!r}.")
    view = _view(posterior)
    solution, trace = view.posterior.solution, view.posterior.solution.trace
    axes = _axes(axes)
    along = getattr(trace, against)
    if len(along) and trace.residual.shape[1] > 1:
        axes.plot(along, trace.residual[:, 1:].max(axis=1), color=GREY, lw=1.2, label="worst sample")
    if len(along):
        axes.plot(along, trace.residual[:, 0], color=BLUE, lw=1.8, label="mean")
    end, upper = float(solution.residual.max()), float(solution.residual_upper.max())
    last = solution.passes if against == "passes" else solution.seconds
    axes.errorbar([last], [end], yerr=[[0.0], [max(upper - end, 0.0)]], fmt="o", color=RED, label="checked at the end")
    if (tol := getattr(solution.solver, "tol", 0.0)) > 0:
        axes.axhline(tol, color=DARK, lw=0.8, ls="--", label=f"asked for, {tol:g}")
    axes.set(yscale="log", xlabel="passes over the kernel matrix" if against == "passes" else "seconds")
    axes.set(ylabel="relative residual", title="Convergence")
    residual = float(solution.residual_upper[0])
    if residual > 0:
        factor = view.units.y_scale * float(view.posterior.error_bound()) / residual
        right = axes.secondary_yaxis(
            "right", functions=(lambda r: factor * np.asarray(r), lambda bound: np.asarray(bound) / factor)
        )
        right.set_ylabel("bound on |mean - exact|")
    axes.legend(frameon=False)
    return axes


def predicted_against_observed(
    y: Any,
    mean: Any,
    std: Any,
    *,
    warp: Warp | None = None,
    calibrated: Calibration = GAUSSIAN,
    axes: Axes | None = None,
) -> Axes:
    """Predictions with 90 % bars against what was observed; perfect ones lie on the line.

    With a `warp`, y, mean and std are those of warp(y), as in a `Prediction`; the picture is in units of y.
    `calibrated`: the calibration of the bars, such as `posterior.calibration`.
    """
    y, mean, std = _predictions(y, mean, std)
    axes = _axes(axes)
    some = np.random.default_rng(0).permutation(len(y))[:MOST_POINTS]
    low, high = (mean + std * z for z in calibrated([0.05, 0.95]))
    inside = np.mean((y >= low) & (y <= high))
    y, mean, low, high = (v if warp is None else warp.inverse(v) for v in (y, mean, low, high))
    axes.vlines(y[some], low[some], high[some], color=BLUE, alpha=0.15, lw=0.8, rasterized=True)
    axes.plot(y[some], mean[some], ".", color=DARK, ms=3, alpha=0.6, rasterized=True)
    ends = [min(y[some].min(), mean[some].min()), max(y[some].max(), mean[some].max())]
    axes.plot(ends, ends, color=RED, lw=1)
    axes.set(
        xlabel="observed",
        ylabel="predicted",
        title=f"Predicted against observed: {100 * inside:.0f} % in the 90 % bars",
    )
    return axes


def calibration(y: Any, mean: Any, std: Any, *, calibrated: Calibration = GAUSSIAN, axes: Axes | None = None) -> Axes:
    """How often observations lie in the central band of each probability; honest ones lie on the diagonal.

    Above it bands are too wide, below it too narrow. The grey area is what chance allows for this many observations.
    `calibrated`: whose bands, such as `posterior.calibration` where the rows had no part in it.
    """
    y, mean, std = _predictions(y, mean, std)
    axes = _axes(axes)
    levels = np.linspace(0.0, 1.0, 51)
    inside = np.abs(2.0 * calibrated.cdf((y - mean) / std) - 1.0)
    chance = 1.96 * np.sqrt(levels * (1 - levels) / len(y))
    axes.fill_between(levels, levels - chance, levels + chance, color="0.85", lw=0, label="chance")
    axes.plot(levels, levels, color=GREY, lw=0.8)
    axes.plot(levels, np.searchsorted(np.sort(inside), levels, side="right") / len(y), color=BLUE, lw=1.8, label="here")
    axes.set(xlabel="probability of the band", ylabel="share of observations in it", title="Calibration")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(frameon=False)
    return axes


def slice_through(
    posterior: Any,
    dimension: int = 0,
    *,
    at: Any = None,
    num_functions: int = 6,
    name: str | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Mean, 90 % band of the function and a few posterior functions along one input.

    The other inputs stay `at` a point, by default the medians of the data. An input with few different values, such as
    yes or no, is shown at these values.
    """
    view = _view(posterior)
    if not 0 <= dimension < view.x.shape[1]:
        raise ValueError(f"dimension must be between 0 and {view.x.shape[1] - 1}, got {dimension!r}.")
    centre = np.median(view.x, axis=0) if at is None else np.asarray(at, np.float64)
    values = np.unique(view.x[:, dimension])
    is_discrete = len(values) <= FEW_VALUES
    low, high = np.quantile(view.x[:, dimension], [0.01, 0.99])
    along = values if is_discrete else np.linspace(low, high, 200)
    line = np.tile(centre, (len(along), 1))
    line[:, dimension] = along
    mean, low_end, high_end = view.band(line)
    axes = _axes(axes)
    if is_discrete:  # no line between yes and no
        axes.errorbar(
            along, mean, [mean - low_end, high_end - mean], fmt="o", color=DARK, ecolor=BLUE, elinewidth=6, alpha=0.9
        )
        axes.set_xticks(along)
    else:
        axes.fill_between(along, low_end, high_end, color=BLUE, alpha=0.22, lw=0)
        if view.posterior.num_samples:
            axes.plot(along, view.functions(line)[:num_functions].T, color=RED, lw=0.8, alpha=0.7)
        axes.plot(along, mean, color=DARK, lw=1.8)
    axes.set(xlabel=name or view.names[dimension], ylabel="f")
    return axes


def importance(
    regressor: GPRegressor, X: Any = None, y: Any = None, *, most: int = 20, axes: Axes | None = None
) -> Axes:
    """How much the error grows when a column is shuffled, on rows kept aside or else on the fitted rows."""
    found = list(importances(regressor, X, y).items())[:most][::-1]
    axes = _axes(axes)
    axes.barh([name for name, _ in found], [max(value, 0.0) for _, value in found], color=BLUE)
    axes.set(xlabel="more RMSE when it is shuffled", title="What matters")
    return axes


def effect_of(regressor: GPRegressor, column: str, *, axes: Axes | None = None) -> Axes:
    """The average prediction along a column, or at each value of a text column; shaded for half of the rows."""
    found = effect(regressor, column)
    axes = _axes(axes)
    if found.is_text:
        places = np.arange(len(found.mean))
        axes.errorbar(
            found.mean, places, xerr=[found.mean - found.low, found.high - found.mean], fmt="o", color=DARK, ecolor=BLUE
        )
        axes.set_yticks(places, [str(value) for value in found.values])
        axes.set(title=column)
        return axes
    axes.fill_between(found.values, found.low, found.high, color=BLUE, alpha=0.22, lw=0)
    axes.plot(found.values, found.mean, color=DARK, lw=1.8)
    axes.set(xlabel=column)
    axes.tick_params(axis="x", rotation=30 if np.asarray(found.values).dtype.kind == "M" else 0)
    return axes


def relevance(posterior: Any, *, names: Sequence[str] | None = None, most: int = 20, axes: Axes | None = None) -> Axes:
    """How much each input matters: its standard deviation divided by its lengthscale. Near 0: hardly at all."""
    view = _view(posterior)
    values = relevances(posterior)
    names = view.names if names is None else list(names)
    order = np.argsort(values)[::-1][:most][::-1]
    axes = _axes(axes)
    axes.barh([names[i] for i in order], values[order], color=BLUE)
    axes.set(xlabel="spread of the input / its lengthscale", title="Relevance of the inputs")
    return axes


def relevances(posterior: Any) -> np.ndarray:
    """The numbers that `relevance` draws, one for each input."""
    view = _view(posterior)
    kernel = view.posterior.model.kernel
    lengthscale = getattr(kernel, "lengthscales", getattr(kernel, "lengthscale", None))
    if lengthscale is None:
        raise ValueError(f"The kernel {kernel!r} has no lengthscale for each input.")
    return view.x.std(axis=0) / np.asarray(lengthscale, np.float64)


@dataclass(frozen=True)
class _View:
    """A posterior in the units of its data."""

    posterior: Posterior
    names: list[str]
    units: Any

    @property
    def x(self) -> np.ndarray:
        return np.asarray(self.posterior.gathered().x, np.float64) + self.units.x_offset

    def band(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The median of the function, and the ends of its central 90 %."""
        centred = x - self.units.x_offset
        found = self.units.prediction(centred, *self.posterior.predict(centred))
        return found.median, *found.quantiles([0.05, 0.95]).T

    def functions(self, x: np.ndarray) -> np.ndarray:
        centred = x - self.units.x_offset
        return self.units.outputs(self.posterior.samples(centred), centred)


def _view(source: Any) -> _View:
    if isinstance(source, Posterior):
        return _View(source, [f"x{i + 1}" for i in range(source.d)], Units(np.zeros(source.d), 0.0, 1.0))
    if isinstance(source, GPRegressor) and hasattr(source, "posterior_"):
        if source.posterior_.num_outputs > 1:
            raise ValueError("The model has several outputs. Show one of them: regressor.output(0), say.")
        names = getattr(source, "feature_names_in_", [f"x{i + 1}" for i in range(source.n_features_in_)])
        names = names if source.encoding_ is None else source.encoding_.inputs
        return _View(source.posterior_, list(names), source.units_)
    raise TypeError(f"Plots take a Posterior or a fitted GPRegressor, got {type(source).__name__}.")


def _predictions(y: Any, mean: Any, std: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, mean, std = (np.asarray(check_targets(v, len(y)), np.float64) for v in (y, mean, std))
    if not np.all(std > 0):
        raise ValueError("std must be positive everywhere. Include the observation noise: post.std(x, noise=True).")
    return y, mean, std


def _axes(axes: Axes | None) -> Axes:
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(6, 4), layout="constrained")[1]
    axes.spines[["top", "right"]].set_visible(False)
    return axes
