"""Decisions before a fit, by the likelihood of some rows: how to transform the target, and whether to fit a trend.

The rows are neighbourhoods of random points, so that there are short and long distances among them. Their exact
likelihood is maximised for a few steps with each choice; a density in z is one in y by the slope of the warp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from dualgp.gp import GaussianProcess
from dualgp.learning import Exact, Step, learn, log_likelihood
from dualgp.sklearn.warps import Warp

NUM_CENTRES, NEIGHBOURS, AMONG = 12, 32, 20_000  # neighbourhoods, rows in each, and rows that they are found among
DRAWS = 8  # draws of centres to compare warps; a single one preferred the root of wages to their logarithm
STEPS = 15  # steps of L-BFGS: choices differ by more than the gain of further steps
LEAST_ROWS, LEAST_VALUES = 50, 10  # to choose a warp: fewer cannot decide
SKEWED, WIDE = 0.5, 3.0  # skewness, and ratio of the outer 5 % points, from which a warp may help
CLEAR = 0.02  # nats a row: what a choice must gain to be worth explaining
POWERS = (0.0, 0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2.0)  # exponents of the Yeo-Johnson transform
TREND_RIDGE = 1e-3  # times the number of rows: the penalty on slopes of standardised inputs
FEW_VALUES_SHARE = 0.5  # the largest fraction of different targets of a rounded target


def resolution(y: Float[np.ndarray, " n"]) -> float:
    """The step of which all targets are multiples, up to a constant; 0 if there is none."""
    values = np.unique(y)
    values = values[np.diff(values, prepend=-np.inf) > 1e-9 * np.ptp(values)]  # 0.1 + 0.2 is not 0.3
    if len(values) < 3 or len(values) > FEW_VALUES_SHARE * len(y):
        return 0.0
    gaps = np.diff(values)
    step = float(gaps.min())
    multiples = gaps / step
    is_rounded = np.max(np.abs(multiples - np.round(multiples))) < 1e-3
    return step if is_rounded and step > 1e-7 * np.ptp(values) else 0.0


def noise_floor(warp: Warp, y: Float[np.ndarray, " n"]) -> float:
    """The variance of rounding in z: resolution^2 / 12, by the middle slope of the warp."""
    return resolution(y) ** 2 / 12.0 * math.exp(2.0 * float(np.median(warp.log_slope(y))))


def as_warp(kind: str, y: Float[np.ndarray, " n"], power: float = 1.0) -> Warp:
    """The warp of a kind for these targets."""
    if kind in ("log", "sqrt"):
        smallest = float(y.min())
        if smallest < 0 or (smallest == 0 and kind == "log" and not (step := _step(y))):
            raise ValueError(
                f"target_transform={kind!r} needs positive targets, got {smallest:.4g}. Choose 'yeo-johnson'."
            )
        shift = -step if smallest == 0 and kind == "log" else 0.0
        warp = Warp(kind, shift, float(np.median(y) - shift) or 1.0)
    elif kind == "yeo-johnson":
        low, middle, high = np.quantile(y, [0.25, 0.5, 0.75])
        warp = Warp(kind, float(middle), float(high - low) or float(y.std()) or 1.0, power)
    else:
        return Warp()
    z = warp(y)
    return replace(warp, low=float(z.min()), high=float(z.max()))


def _step(y: Float[np.ndarray, " n"]) -> float:
    """The number added to targets that may be zero before taking logarithms: their step, or the smallest of them."""
    return resolution(y) or float(np.min(y[y > 0], initial=np.inf)) if (y > 0).any() else 0.0


def choose_warp(model: GaussianProcess, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"]) -> tuple[Warp, str]:
    """The warp under which neighbourhoods are most probable, and a sentence. `model`: for standardised targets."""
    if not may_be_warped(y):
        return Warp(), ""
    draws = [neighbourhoods(model, x, seed) for seed in range(DRAWS)]
    size = min(map(len, draws))  # arrays of one shape, for one program
    groups = [(x[rows[:size]], y[rows[:size]]) for rows in draws]
    values, warps = {}, {warp.kind: warp for warp in _candidates(model, *groups[0], y)}
    for kind, warp in warps.items():
        values[kind], model = likelihood(model, groups, warp, y)
    best = max(values, key=lambda kind: values[kind])
    gain = values[best] - values["none"]
    if best == "none" or gain < CLEAR:
        return Warp(), ""
    return warps[best], f"The target is modelled by its {best} ({gain:.2f} nats a row more likely)."


def may_be_warped(y: Float[np.ndarray, " n"]) -> bool:
    """Whether targets are skewed enough, or differ by a large enough factor, to compare warps."""
    if len(y) < LEAST_ROWS or len(np.unique(y[:1000])) < LEAST_VALUES:
        return False
    low, high = np.quantile(y, [0.05, 0.95])
    skewness = float(np.mean(((y - y.mean()) / y.std()) ** 3))
    return bool(abs(skewness) > SKEWED or (low > 0 and high > WIDE * low))


def _candidates(model: GaussianProcess, x: np.ndarray, own: np.ndarray, y: np.ndarray) -> Iterator[Warp]:
    yield Warp()
    if y.min() >= 0 and (y > 0).any():
        yield as_warp("log", y)
        yield as_warp("sqrt", y)
    near = _nearest(np.asarray(model.kernel.coordinates(x)), 8)
    warps = [as_warp("yeo-johnson", y, power) for power in POWERS]
    yield max(warps, key=lambda warp: _quick_value(warp, own, near))


def _quick_value(warp: Warp, y: np.ndarray, near: Int[np.ndarray, "n k"]) -> float:
    """The log density of differences from the average of neighbours, assumed normal."""
    z = warp(y)
    return float(-np.log(np.std(z - z[near].mean(axis=1)) + 1e-300) + np.mean(warp.log_slope(y)))


def likelihood(
    model: GaussianProcess, groups: Sequence[tuple[np.ndarray, np.ndarray]], warp: Warp, whole: np.ndarray
) -> tuple[float, GaussianProcess]:
    """The log density in nats a row of some groups (x, y), and the model of the standardised z that has it.

    The model is fitted to the first group.
    """
    z = warp(whole)
    offset, scale = float(z.mean()), float(z.std()) or 1.0
    floor = max(noise_floor(warp, whole) / scale**2, 1e-6)
    scaled = [(x, (warp(y) - offset) / scale) for x, y in groups]
    model = climb(model, *scaled[0], floor)[1]
    value = float(np.mean([log_likelihood(model, x, z) / len(z) for x, z in scaled]))
    return value - math.log(scale) + float(np.mean([warp.log_slope(y).mean() for _, y in groups])), model


def climb(model: GaussianProcess, x: np.ndarray, z: np.ndarray, floor: float) -> tuple[float, GaussianProcess]:
    """The log likelihood in nats a row after a few steps from `model`, with a noise of at least `floor`."""
    count = iter(range(STEPS))
    stop: Callable[[Step], bool] = lambda step: next(count, None) is None  # noqa: E731
    learned = learn(model, x, z, method=Exact(num_starts=1), progress=stop)
    if learned.interrupted:
        raise KeyboardInterrupt
    model = replace(learned.model, noise=np.maximum(learned.model.noise, floor))
    return log_likelihood(model, x, z) / len(z), model


def neighbourhoods(model: GaussianProcess, x: Float[np.ndarray, "n d"], seed: int = 0) -> Int[np.ndarray, " rows"]:
    """Random rows and the nearest of some others, each row once, in the order of the data."""
    rng = np.random.default_rng(seed)
    among = np.sort(rng.permutation(len(x))[:AMONG])
    coordinates = np.asarray(model.kernel.coordinates(x[among]), np.float64)
    centres = rng.permutation(len(among))[:NUM_CENTRES]
    size = min(NEIGHBOURS, len(among))
    near = [np.argpartition(((coordinates - coordinates[i]) ** 2).sum(axis=1), size - 1)[:size] for i in centres]
    return among[np.unique(np.concatenate(near))]


def _nearest(coordinates: Float[np.ndarray, "n c"], num: int) -> Int[np.ndarray, "n k"]:
    squared = ((coordinates[:, None] - coordinates[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    num = min(num, len(squared) - 1)
    return np.argpartition(squared, num - 1, axis=1)[:, :num]


def fit_trend(x: Float[np.ndarray, "n d"], z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " d"]:
    """Slopes of a ridge regression of z on centred inputs."""
    spread = x.std(axis=0, dtype=np.float64)
    scaled = x / np.where(spread > 0, spread, np.inf)
    gram = scaled.T @ scaled + TREND_RIDGE * len(x) * np.eye(x.shape[1])
    return np.linalg.solve(gram, scaled.T @ (z - z.mean())) / np.where(spread > 0, spread, np.inf)


def choose_trend(
    model: GaussianProcess, x: Float[np.ndarray, "n d"], z: Float[np.ndarray, " n"], floor: float
) -> Float[np.ndarray, " d"] | None:
    """The slopes of a linear trend of standardised z, if it makes rows that it was not fitted to more likely."""
    rows = neighbourhoods(model, x)
    rest = np.setdiff1d(np.arange(len(x)), rows)
    if len(rest) < max(len(rows), 10 * x.shape[1]):
        return None
    slopes = fit_trend(x[rest], z[rest])
    x_own, z_own = x[rows], z[rows]
    plain, model = climb(model, x_own, z_own, floor)
    residual = z_own - x_own @ slopes
    # Both are densities of z, because subtracting a trend has slope 1.
    scale = max(float(residual.std()), 1e-12)
    with_trend = climb(model, x_own, (residual - residual.mean()) / scale, floor / scale**2)[0] - math.log(scale)
    return fit_trend(x, z) if with_trend > plain + CLEAR else None
