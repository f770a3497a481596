"""Points to try next: initial designs, distinct points, and which points are still pending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dualgp._arrays import in_wide
from dualgp._random import generator
from dualgp._types import RandomKey
from dualgp.decisions.maxima import spread_of
from dualgp.gp import GaussianProcess

if TYPE_CHECKING:
    from dualgp.decisions.thompson import ThompsonState

SAME = 1e-6  # times the box: points this near are the same experiment
ROUNDED = 5e-6  # relative to the numbers: told points may have six digits


def spread_evenly(bounds: np.ndarray, num: int, key: RandomKey) -> Float[np.ndarray, "num d"]:
    """The points of a Sobol sequence."""
    from scipy.stats import qmc

    sobol = qmc.Sobol(len(bounds), rng=generator(key))
    unit = sobol.random_base2(max(0, (num - 1).bit_length()))[:num]  # whole powers of two are balanced
    return bounds[:, 0] + unit * (bounds[:, 1] - bounds[:, 0])


def distinct(x: Float[np.ndarray, "num choices d"], state: ThompsonState, key: RandomKey) -> np.ndarray:
    """One choice for each row: the first that is not taken, or if all are, a point near the first one."""
    from scipy.spatial import cKDTree

    rng, lower = generator(key), state.bounds[:, 0]
    width = state.bounds[:, 1] - lower
    reach = np.full(len(width), 0.1) if state.model is None else _reach(state.model, state.bounds)
    before = cKDTree((np.concatenate([state.pending, state.failed]) - lower) / width)
    chosen: list[np.ndarray] = []
    taken: set[tuple[int, ...]] = set()
    for choices in (x - lower) / width:
        for point in _choices(choices, reach, rng):
            cell = tuple(np.round(point / (10 * SAME)).astype(int))
            if cell not in taken and before.query(point)[0] > SAME:  # infinitely far if there is none
                break
        taken.add(cell)
        chosen.append(point)
    return np.clip(lower + np.array(chosen) * width, lower, state.bounds[:, 1])


def _choices(choices: np.ndarray, reach: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The given choices, then points near the first one, reflected into the box."""
    yield from choices
    while True:
        point = np.abs(choices[0] + reach * rng.standard_normal(len(reach)))
        yield np.clip(np.minimum(point, 2.0 - point), 0.0, 1.0)


@in_wide
def _reach(model: GaussianProcess, bounds: np.ndarray) -> Float[np.ndarray, " d"]:
    """A tenth of the distance over which functions vary, relative to the box."""
    return 0.1 * spread_of(model.kernel, bounds) / (bounds[:, 1] - bounds[:, 0])


def without(pending: np.ndarray, told: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The pending points that were not told; each told point, maybe rounded, removes one."""
    from scipy.spatial import cKDTree

    if not len(pending) or not len(told):
        return pending
    # Six digits of a number near 300 are worth less than six digits of the width of a box from 290 to 310.
    unit = np.maximum(bounds[:, 1] - bounds[:, 0], np.abs(bounds).max(axis=1))
    distance, index = cKDTree(pending / unit).query(told / unit)
    return np.delete(pending, np.unique(index[distance <= ROUNDED * np.sqrt(len(unit))]), axis=0)
