"""What a regressor does to inputs and targets before it learns (scales, a function of y, a trend), and draws of y."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dualgp.gp import GaussianProcess
from dualgp.kernels import Matern32
from dualgp.kernels.scaled import root_sums
from dualgp.posterior import Posterior
from dualgp.sklearn.choices import as_warp, choose_trend, choose_warp, fit_trend
from dualgp.sklearn.conditioning import one_if_constant
from dualgp.sklearn.units import Units
from dualgp.sklearn.warps import Warp

NOISE = 0.1  # relative to the variance of y, to start from
Widths = tuple[int, ...] | None  # how many inputs share each lengthscale


def standard_model(X: np.ndarray, widths: Widths) -> GaussianProcess:
    """What to start from where nothing is given, for standardised targets."""
    std = X.std(axis=0, dtype=np.float64)
    scales = one_if_constant(std, X)
    if widths is not None:
        scales = root_sums(std, widths)
        scales = np.where(scales > 0, scales, 1.0)
    return model_of(scales, widths)


def model_of(scales: Float[np.ndarray, " groups"], widths: Widths = None) -> GaussianProcess:
    """The same for inputs with these scales."""
    return GaussianProcess(Matern32(scales * np.sqrt(len(scales)), widths=widths), NOISE)


def make_units(X: np.ndarray, y: np.ndarray, warp: Warp, centres: bool) -> Units:
    """The units of the targets, and where inputs are centred if they may be."""
    z = warp(y)
    x_offset = X.mean(axis=0, dtype=np.float64) if centres else np.zeros(X.shape[1])
    return Units(x_offset, float(z.mean()), float(one_if_constant(z.std(), z)), warp)


def find_warp(transform: Any, X: np.ndarray, y: np.ndarray, widths: Widths, is_free: bool) -> tuple[Warp, str]:
    """The function of y to model, and a sentence about it. `is_free`: everything else is left to be found."""
    if transform not in ("auto", *Warp.KINDS):
        raise ValueError(f"target_transform must be 'auto' or one of {', '.join(Warp.KINDS)}, got {transform!r}.")
    if transform != "auto":
        return as_warp(transform, y), ""
    x = X - X.mean(axis=0, dtype=np.float64) if is_free else X
    return choose_warp(standard_model(x, widths), x, y) if is_free else (Warp(), "")


def find_trend(
    trend: Any, model: GaussianProcess, units: Units, x: np.ndarray, targets: np.ndarray, floor: float, is_free: bool
) -> tuple[Units, str]:
    """The units with a linear trend where it helps, and a sentence about it."""
    if trend not in ("auto", True, False):
        raise ValueError(f"trend must be 'auto', True or False, got {trend!r}.")
    slopes = fit_trend(x, targets) if trend is True else None
    if trend == "auto" and is_free:
        slopes = choose_trend(model, x, targets, floor)
    if slopes is None:
        return units, ""
    units = replace(units, slopes=slopes)
    share = float(np.var(units.trend(x)) / np.var(targets))
    return units, f"A linear trend explains {100 * share:.0f} % of the variance and was taken out first."


def draw_observations(
    posterior: Posterior, x: np.ndarray, n_samples: int, rng: np.random.RandomState
) -> Float[np.ndarray, "samples m"]:
    """Posterior functions plus noise; where there are not as many, exact draws if the posterior is exact."""
    if n_samples <= posterior.num_samples:
        which = rng.choice(posterior.num_samples, n_samples, replace=False)
        values = posterior.samples(x)[which].T.astype(np.float64)
        return (values + np.sqrt(float(posterior.model.noise)) * rng.standard_normal(values.shape)).T
    if posterior.is_exact:
        mean, covariance = np.asarray(posterior.mean(x)), posterior.covariance(x, noise=True)
        return mean + (np.linalg.cholesky(covariance) @ rng.standard_normal((len(mean), n_samples))).T
    raise ValueError(
        f"There are {posterior.num_samples} posterior functions, {n_samples} draws were asked for. "
        f"Fit with n_samples={n_samples} to have as many."
    )
