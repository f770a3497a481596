"""Scales, transform and trend of inputs and targets before learning; and draws of y."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dualgp.gp import GaussianProcess
from dualgp.kernels import Matern32
from dualgp.kernels.scaled import root_sums
from dualgp.posterior import Posterior
from dualgp.sklearn.choices import as_warp, choose_trend, choose_warp, fit_trend, noise_floor
from dualgp.sklearn.conditioning import inner_scale, one_if_constant
from dualgp.sklearn.outputs import UnitsOfMany
from dualgp.sklearn.units import Units
from dualgp.sklearn.warps import Warp

NOISE = 0.1  # relative to the variance of y: the start of learning
Warps = Warp | tuple[Warp, ...]  # for one output, or one for each of several
Widths = tuple[int, ...] | None  # how many inputs share each lengthscale


def standard_model(X: np.ndarray, widths: Widths) -> GaussianProcess:
    """The model to start from if none is given, for standardised targets."""
    std = X.std(axis=0, dtype=np.float64)
    scales = one_if_constant(std, X)
    if widths is not None:
        scales = root_sums(std, widths)
        scales = np.where(scales > 0, scales, 1.0)
    return model_of(scales, widths)


def model_of(scales: Float[np.ndarray, " groups"], widths: Widths = None) -> GaussianProcess:
    """The same for inputs with these scales."""
    return GaussianProcess(Matern32(scales * np.sqrt(len(scales)), widths=widths), NOISE)


def make_units(
    X: np.ndarray, y: np.ndarray, warp: Warps, centres: bool, own_scales: bool, robust: bool = False
) -> Units | UnitsOfMany:
    """The scales of the targets, and the centre of the inputs if these may be centred.

    Without `own_scales` several outputs have one scale, so that parameters mean the same for all of them. `robust`:
    estimate scales from the inner targets.
    """
    x_offset = X.mean(axis=0, dtype=np.float64) if centres else np.zeros(X.shape[1])
    if isinstance(warp, Warp):
        z = warp(y)
        if robust and (scale := inner_scale(z)) > 0:
            return Units(x_offset, float(np.median(z)), scale, warp)
        return Units(x_offset, float(z.mean()), float(one_if_constant(z.std(), z)), warp)
    z = np.stack([own(column) for own, column in zip(warp, y.T, strict=True)], axis=1)
    scales = one_if_constant(z.std(axis=0), z)
    if not own_scales:
        scales = np.full(len(scales), np.sqrt(np.mean(scales**2)))
    each = zip(z.mean(axis=0).tolist(), scales.tolist(), warp, strict=True)
    return UnitsOfMany(tuple(Units(x_offset, offset, scale, own) for offset, scale, own in each))


def find_warp(transform: Any, X: np.ndarray, y: np.ndarray, widths: Widths, is_free: bool) -> tuple[Warps, str]:
    """The transform of y, and a sentence about it. `is_free`: kernel, noise and mean are learned, too.

    Several outputs have one each, and none unless it is given.
    """
    if transform not in ("auto", *Warp.KINDS):
        raise ValueError(f"target_transform must be 'auto' or one of {', '.join(Warp.KINDS)}, got {transform!r}.")
    if y.ndim > 1:
        return tuple(as_warp(transform, column) for column in y.T), ""
    if transform != "auto":
        return as_warp(transform, y), ""
    x = X - X.mean(axis=0, dtype=np.float64) if is_free else X
    return choose_warp(standard_model(x, widths), x, y) if is_free else (Warp(), "")


def find_floor(units: Units | UnitsOfMany, y: np.ndarray) -> float:
    """The variance of rounding in standardised targets; for several outputs the smallest."""
    if isinstance(units, UnitsOfMany):
        return min(find_floor(one, column) for one, column in zip(units.each, y.T, strict=True))
    return noise_floor(units.warp, y) / units.y_scale**2


def find_trend(
    trend: Any,
    model: GaussianProcess,
    units: Units | UnitsOfMany,
    x: np.ndarray,
    targets: np.ndarray,
    floor: float,
    is_free: bool,
) -> tuple[Any, str]:
    """The units with a linear trend if it helps, and a sentence; for several outputs only if it is asked for."""
    if trend not in ("auto", True, False):
        raise ValueError(f"trend must be 'auto', True or False, got {trend!r}.")
    if isinstance(units, UnitsOfMany):
        if trend is not True:
            return units, ""
        each = [replace(one, slopes=fit_trend(x, z)) for one, z in zip(units.each, targets.T, strict=True)]
        return UnitsOfMany(tuple(each)), "Linear trends were taken out first."
    slopes = fit_trend(x, targets) if trend is True else None
    if trend == "auto" and is_free:
        slopes = choose_trend(model, x, targets, floor)
    if slopes is None:
        return units, ""
    units = replace(units, slopes=slopes)
    share = float(np.var(units.trend(x)) / np.var(targets))
    return units, f"A linear trend explains {100 * share:.0f} % of the variance and was taken out first."


def draw_observations(
    posterior: Posterior, x: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: np.ndarray
) -> Float[np.ndarray, "samples m"] | Float[np.ndarray, "samples m k"]:
    """Posterior functions plus `noise`, the variances of m new observations.

    If there are not enough functions, exact draws if the posterior is exact.
    """
    if n_samples <= posterior.num_samples:
        which = rng.choice(posterior.num_samples, n_samples, replace=False)
        values = np.moveaxis(np.asarray(posterior.samples(x)[which], np.float64), 0, -1)
        deviation = np.sqrt(noise).reshape(-1, *[1] * (values.ndim - 1))
        return np.moveaxis(values + deviation * rng.standard_normal(values.shape), -1, 0)
    if posterior.is_exact:
        mean, root = np.asarray(posterior.mean(x)), np.linalg.cholesky(posterior.covariance(x, noise=noise))
        draws = rng.standard_normal((*mean.shape[::-1], n_samples))  # each output independently
        return mean + np.moveaxis(root @ draws, -1, 0).swapaxes(1, -1)
    raise ValueError(
        f"There are {posterior.num_samples} posterior functions, {n_samples} draws were asked for. "
        f"Fit with n_samples={n_samples} to have as many."
    )
