"""The maxima of many functions in a box: rounds of shared candidates, then a climb from each function's best ones.

    round      candidates for all functions together, some anywhere, most near good points; each function keeps its best
    climb      each function climbs by Adam, inside the box, from its best candidates

Rounds take candidates * n * s kernel entries, the climb starts * steps * n * s: a step evaluates each of s functions at
its own `num_starts` points only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled, in_wide
from dualgp._checks import (
    as_float_array,
    check_count,
    check_finite,
    check_key,
    check_number,
    check_points,
    check_positive_number,
)
from dualgp._random import generator
from dualgp._types import AnyArray, RandomKey
from dualgp.kernels import Kernel
from dualgp.operators.layout import Local
from dualgp.posterior import SamplePaths

CLIMB_AT_ONCE = 1024  # points that climb together
MOST_GOOD_POINTS = 16_384  # data among which good points are searched, if none are given
SMALLEST_SCALE = 0.05  # the smallest distance of candidates from a best point, relative to `spread_of`


@dataclass(frozen=True)
class Search:
    """How thorough the search is.

    - `num_rounds` of `num_candidates`: a fraction `uniform` anywhere in the box; of the others, a fraction `adaptive`
      near the best points so far of random functions, and the rest near given good points.
    - `num_starts`: how many of a function's best candidates climb, on different hills if possible.
    - `num_steps` of Adam with `step_size`, in units of the distance over which the functions vary; it falls to zero
      during the climb unless `decay` is False.
    """

    num_rounds: int = 12
    num_candidates: int = 2048
    uniform: float = 0.2
    adaptive: float = 0.5
    num_starts: int = 4
    num_steps: int = 50
    step_size: float = 0.1
    decay: bool = True

    def __post_init__(self) -> None:
        for name in ("num_rounds", "num_candidates", "num_starts"):
            check_count(getattr(self, name), name, 1)
        check_count(self.num_steps, "num_steps")
        check_positive_number(self.step_size, "step_size")
        for name in ("uniform", "adaptive"):
            check_number(getattr(self, name), name)
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share between 0 and 1, got {getattr(self, name)!r}.")


def as_search(search: Search | None) -> Search:
    """The settings of a search; None is the default."""
    if not isinstance(search, Search | None):
        raise TypeError(f"search must be a Search(), or None for the default, got {search!r}.")
    return search or Search()


class Maxima(NamedTuple):
    """Argument and value of each function's maximum, in the order of `SamplePaths`."""

    x: Float[np.ndarray, "s d"]
    value: Float[np.ndarray, " s"]


class Good(NamedTuple):
    """Good points to search near, and the probability of each."""

    x: Float[np.ndarray, "m d"]
    probability: Float[np.ndarray, " m"]


def maximise(
    paths: SamplePaths,
    bounds: Any,
    *,
    key: RandomKey,
    search: Search | None = None,
    near: tuple[Any, Any] | None = None,
    progress: Callable[[str], Any] | None = None,
) -> Maxima:
    """Where each posterior function is highest in a box, e.g. `maximise(post.samples, [(0, 1), (0, 1)], key=key)`.

    **Arguments:**

    - `paths`: the functions; `-post.samples` to find minima.
    - `bounds`: a pair (lower, upper) for each input.
    - `search`: how thorough, see `Search`.
    - `near`: good points (m, d) and their values (m,); the larger the value, the more candidates near the point. By
      default the data of the functions, with the values of their average.
    - `progress`: called with the name of each stage.
    """
    x, values = climb_all(paths, bounds, key=key, search=search, near=near, progress=progress)
    return Maxima(x[:, 0], values[:, 0])


@in_wide
def climb_all(
    paths: SamplePaths,
    bounds: Any,
    *,
    key: RandomKey,
    search: Search | None = None,
    near: tuple[Any, Any] | None = None,
    progress: Callable[[str], Any] | None = None,
) -> tuple[Float[np.ndarray, "s starts d"], Float[np.ndarray, "s starts"]]:
    """What `maximise` finds, and the ends of each function's other climbs, the best first."""
    if not isinstance(paths, SamplePaths):
        raise TypeError(f"maximise takes posterior functions such as post.samples, got {type(paths).__name__}.")
    if paths.num_outputs > 1:
        raise ValueError("These functions have several outputs. Choose one: post.output(0).samples.")
    if not isinstance(paths.update.layout, Local):
        raise ValueError("These functions are sharded over devices. Maximise post.gathered().samples instead.")
    search, report = as_search(search), progress or (lambda words: None)
    box = check_bounds(bounds, paths.update.x.shape[1])
    rng = generator(check_key(key, "Maximising"))
    paths = _padded(paths)
    rough = _in_single_precision(paths)
    starts = _candidates(rough, box, _good_points(rough, box, near, rng), search, rng, report)
    x, values = _climb(paths, box, starts, search, report)
    order = np.argsort(-values, axis=1)
    return np.take_along_axis(x, order[..., None], axis=1), np.take_along_axis(values, order, axis=1)


def check_bounds(bounds: Any, d: int | None = None) -> Float[np.ndarray, "d 2"]:
    """A box as (d, 2) finite numbers, lower before upper."""
    box = np.asarray(as_float_array(bounds, "bounds"), np.float64)
    if box.ndim != 2 or box.shape[1] != 2 or box.shape[0] == 0 or (d is not None and box.shape[0] != d):
        count = "each" if d is None else f"each of {d}"
        raise ValueError(f"bounds must be a pair (lower, upper) for {count} input(s), got shape {box.shape}.")
    check_finite(box, "bounds")
    wrong = np.flatnonzero(box[:, 0] >= box[:, 1])
    if wrong.size:
        low, high = box[wrong[0]]
        raise ValueError(f"bounds[{wrong[0]}] is ({low:g}, {high:g}): the lower bound must be below the upper one.")
    return box


def _in_single_precision(paths: SamplePaths) -> SamplePaths:
    """The functions in float32, which is enough for candidates, and ten times as fast for data in float64."""
    where = lambda paths: (paths.update.x, paths.update.weights)  # noqa: E731
    return eqx.tree_at(where, paths, tuple(array.astype(jnp.float32) for array in where(paths)))


def _padded(paths: SamplePaths) -> SamplePaths:
    """The same functions with padding, rows of weight zero, so that n takes few different values: when data are added,
    as in Thompson sampling, most searches then compile nothing."""
    n = paths.update.x.shape[0]
    unit = max(64, 1 << max(0, n.bit_length() - 3))  # an eighth to a quarter of n
    return replace(paths, update=paths.update.padded(n + -n % unit))


def spread_of(kernel: Kernel, box: Float[np.ndarray, "d 2"]) -> Float[np.ndarray, " d"]:
    """Half the distance over which functions vary, in each input: half a lengthscale, at most half the box."""
    centre, width = box.mean(axis=1), box[:, 1] - box[:, 0]
    slope = np.linalg.norm(np.asarray(_slopes(kernel, centre), np.float64), axis=0)
    return 0.5 / np.maximum(slope, 1.0 / width)


@compiled
def _slopes(kernel: Kernel, centre: Float[AnyArray, " d"]) -> Float[Array, "c d"]:
    return jax.jacobian(lambda x: kernel.coordinates(x[None])[0])(jnp.asarray(centre))


def _good_points(
    paths: SamplePaths, box: np.ndarray, near: tuple[Any, Any] | None, rng: np.random.Generator
) -> Good | None:
    """Probabilities that grow from zero at the worst point in proportion to how much better a point is."""
    if near is not None:
        x = np.asarray(check_points(near[0], "near", len(box)), np.float64)
        score = np.asarray(as_float_array(near[1], "near"), np.float64)
        if score.shape != x.shape[:1]:
            raise ValueError(f"near must be points and a number for each, got shapes {x.shape} and {score.shape}.")
    else:
        x = np.asarray(paths.update.x, np.float64)
        x = x[rng.permutation(len(x))[:MOST_GOOD_POINTS]]
        score = np.asarray(paths.average()(x)[0], np.float64)
    inside = np.all((x >= box[:, 0]) & (x <= box[:, 1]), axis=1) & np.isfinite(score)
    x, score = x[inside], score[inside]
    above = score - score.min(initial=np.inf)
    return Good(x, above / above.sum()) if above.sum() > 0 else None


def _candidates(
    paths: SamplePaths,
    box: np.ndarray,
    good: Good | None,
    search: Search,
    rng: np.random.Generator,
    report: Callable[[str], Any],
) -> Float[np.ndarray, "s starts d"]:
    """The starts of the climb: each function's best candidates of all rounds, on different hills if possible."""
    lower, upper, spread = box[:, 0], box[:, 1], spread_of(paths.update.kernel, box)
    found_x: list[np.ndarray] = []
    found: list[np.ndarray] = []
    for number in range(search.num_rounds):
        report(f"candidates, round {number + 1} of {search.num_rounds}")
        x = rng.uniform(lower, upper, (search.num_candidates, len(box)))
        num = search.num_candidates - max(1, round(search.uniform * search.num_candidates))
        num_adaptive = 0 if not found else num if good is None else round(search.adaptive * num)
        if num_adaptive:
            best = np.argmax(found, axis=0)
            function = rng.integers(0, len(best), num_adaptive)
            around = np.stack(found_x)[best[function], function]
            scale = SMALLEST_SCALE ** rng.random((num_adaptive, 1))
            x[:num_adaptive] = around + scale * spread * rng.standard_normal(around.shape)
        if good is not None:
            around = good.x[rng.choice(len(good.x), num - num_adaptive, p=good.probability)]
            x[num_adaptive:num] = around + spread * rng.standard_normal(around.shape)
        x = np.clip(x, lower, upper)
        values = np.asarray(paths(x))
        values = np.where(np.isnan(values), -np.inf, values)
        # Starts are kept apart, because points near a summit are higher than those at the foot of a higher hill.
        for part in (slice(num_adaptive), slice(num_adaptive, None)):
            if x[part].size:
                best = np.argmax(values[:, part], axis=1)
                found_x.append(x[part][best])
                found.append(values[:, part][np.arange(len(best)), best])
    return _best_of_each_hill(np.stack(found_x, axis=1), np.stack(found, axis=1), spread, search.num_starts)


def _best_of_each_hill(
    x: Float[np.ndarray, "s rounds d"], heights: Float[np.ndarray, "s rounds"], spread: np.ndarray, num: int
) -> Float[np.ndarray, "s starts d"]:
    """The highest point, then the highest one far from it, and so on; if none is far, the next highest."""
    rows, left = np.arange(len(x)), np.where(np.isneginf(heights), np.finfo(heights.dtype).min, heights)
    away = np.ones(heights.shape, bool)
    chosen = []
    for _ in range(min(num, heights.shape[1])):
        candidates = np.where(away.any(axis=1, keepdims=True) & ~away, -np.inf, left)
        pick = np.argmax(candidates, axis=1)
        chosen.append(x[rows, pick])
        left[rows, pick] = -np.inf
        away &= np.linalg.norm((x - chosen[-1][:, None]) / spread, axis=2) > 1.0
    return np.stack(chosen, axis=1)


def _climb(
    paths: SamplePaths, box: np.ndarray, starts: np.ndarray, search: Search, report: Callable[[str], Any]
) -> tuple[Float[np.ndarray, "s starts d"], Float[np.ndarray, "s starts"]]:
    """Ends and heights of the climbs, some functions at a time; the last batch overlaps the one before."""
    num, size = len(paths), min(len(paths), max(1, CLIMB_AT_ONCE // starts.shape[1]))
    ends, values = np.empty_like(starts), np.empty(starts.shape[:2])
    dtype = paths.update.x.dtype
    spread = spread_of(paths.update.kernel, box)
    for start in range(0, num, size):
        report(f"climbing, function {start + 1} of {num}")
        some = slice(min(start, num - size), min(start, num - size) + size)
        arrays = (jnp.asarray(array, dtype) for array in (box, spread, starts[some]))
        ends[some], values[some] = _ascend(paths[some], *arrays, search)
    return np.clip(ends, box[:, 0], box[:, 1]), values


@compiled
def _ascend(
    paths: SamplePaths,
    box: Float[Array, "d 2"],
    spread: Float[Array, " d"],
    starts: Float[Array, "s starts d"],
    search: Search,
) -> tuple[Float[Array, "s starts d"], Float[Array, "s starts"]]:
    """Adam in units of `spread_of`, so that one step size suits every input. The start, if the end is not higher."""
    import optax  # slow to import, and needed here only

    adam = optax.scale_by_adam(eps=1e-30)  # values may be of any size

    def step(carry: tuple[Array, Any], t: Array) -> tuple[tuple[Array, Any], None]:
        x, memory = carry
        _, gradient = paths.each(x)
        change, memory = adam.update(gradient * spread, memory)
        rate = search.step_size * (1.0 - t / search.num_steps if search.decay else 1.0)
        x = jnp.clip(x + (rate * spread).astype(x.dtype) * change, box[:, 0], box[:, 1])
        return (x, memory), None

    (ends, _), _ = jax.lax.scan(step, (starts, adam.init(starts)), jnp.arange(search.num_steps))
    before, after = paths.each(starts)[0], paths.each(ends)[0]
    higher = after > before  # a step may overshoot; NaN is never higher
    return jnp.where(higher[..., None], ends, starts), jnp.where(higher, after, before)
