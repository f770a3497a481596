"""How good predictions are, how sure, and what to do next: sentences for people."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualgp.sklearn.warps import Prediction, scores

LEAST_ROWS = 150  # for coverage by fifths: with 30 rows a coverage of 90 % is known to 5 %
TOO_FEW, TOO_MANY = 0.82, 0.97  # the coverage of a 90 % band below and above which advice is given


class Fifth(NamedTuple):
    """Rows whose predictions are between `low` and `high`."""

    low: float
    high: float
    coverage: float
    rmse: float


def fifths(y: np.ndarray, prediction: Prediction) -> list[Fifth]:
    """Coverage of the 90 % band by fifths of the predictions; none where there are too few rows."""
    if len(y) < LEAST_ROWS:
        return []
    mean, band = prediction.mean, prediction.quantiles([0.05, 0.95])
    found = []
    for rows in np.array_split(np.argsort(mean, kind="stable"), 5):
        inside = (y[rows] >= band[rows, 0]) & (y[rows] <= band[rows, 1])
        rmse = float(np.sqrt(np.mean((y[rows] - mean[rows]) ** 2)))
        found.append(Fifth(float(mean[rows[0]]), float(mean[rows[-1]]), float(np.mean(inside)), rmse))
    return found


def advise(y: np.ndarray, prediction: Prediction, target: Any) -> str:
    """A sentence about bands that are too narrow or too wide for some predictions, if any are."""
    parts = fifths(y, prediction)
    if not parts:
        return ""
    worst = min(parts, key=lambda part: part.coverage)
    place = {0: "small", 4: "large"}.get(parts.index(worst), "middling")
    is_skewed = prediction.warp.kind == "none" and place == "large" and float(y.min()) > 0
    remedy = "try --transform log" if is_skewed else "take them with care there"
    if worst.coverage < TOO_FEW:
        share = f"{100 * worst.coverage:.0f} % of the observations instead of 90"
        return f"Bands are too narrow for {place} {target} ({share}): {remedy}."
    if min(part.coverage for part in parts) > TOO_MANY:
        return "Bands are too wide: more of the rows, or columns that say more, would narrow them."
    return ""


def summarise(y: np.ndarray, prediction: Prediction, what: str, target: Any) -> list[str]:
    """How good and how sure, in two lines."""
    found, half = scores(y, prediction), np.diff(prediction.quantiles([0.05, 0.95]), axis=1) / 2
    explained = 100 * (1 - found["rmse"] ** 2 / max(float(np.var(y)), 1e-300))
    middle = readable(float(np.median(half)), 3)
    return [
        f"How good: a typical error of {readable(found['rmse'])} in {target}, {explained:.1f} % of its variance "
        f"explained ({what}).",
        f"How sure: give or take {middle} for most rows; {100 * found['coverage90']:.0f} % of the observations are in "
        "their 90 % band.",
    ]


def readable(value: float, digits: int = 4) -> str:
    """A number with so many digits, written out unless it is very large or very small."""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{places}f}"
