"""More rows for a posterior: into its near field without a solve, or as the start of another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from dualgp._random import subkey
from dualgp._types import RandomKey
from dualgp.operators import policy
from dualgp.operators.cross import evaluate
from dualgp.operators.layout import make_layout
from dualgp.operators.merging import GivenRows
from dualgp.operators.noise import Noise, join
from dualgp.posterior import AllRows, Posterior
from dualgp.posterior.prior import draw_targets
from dualgp.solvers.residual import column_norms, norms


@dataclass(frozen=True, eq=False)
class Known:
    """All rows with their targets, weights (zero for rows that have none), residuals and noise.

    `places`: the rows that have weights. Before functions are drawn, `targets` has the columns of the means alone.
    """

    x: np.ndarray
    places: Int[np.ndarray, " places"]
    targets: Float[np.ndarray, "n known"]
    weights: Float[np.ndarray, "n columns"]
    residuals: Float[np.ndarray, "n columns"] | None
    draw_key: np.ndarray | None
    num_outputs: int
    noise: Noise
    given: GivenRows | None

    def start(self, dtype: np.dtype) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Weights and their residuals to start a solve from, if there are any."""
        if not len(self.places):
            return None, None
        return self.weights.astype(dtype), None if self.residuals is None else self.residuals.astype(dtype)


def gather(
    posterior: Posterior, x: np.ndarray, y: Float[np.ndarray, "m k"], noise: Noise, key: RandomKey | None
) -> Known:
    """The rows of `posterior` and new ones, with this noise."""
    layout, before, after = posterior.layout, posterior.layout.n, posterior.layout.n + len(x)
    k, every = posterior.num_outputs, join(posterior.row_noise, before, noise, len(x))
    draw_key: Any = posterior.draw_key
    if draw_key is None and key is not None:
        draw_key = np.ravel(jax.random.key_data(subkey(key, "noise")))[:2]
    targets, columns = layout.collect(posterior.targets), posterior.targets.shape[1]
    new = np.empty((len(x), columns), targets.dtype)
    new[:, :k] = y - np.asarray(posterior.model.mean)
    if posterior.prior is not None and columns > k and len(x):
        rows = np.arange(before, after)
        new[:, k:] = draw_targets(posterior.prior, posterior.model.kernel, every, draw_key, x, after, rows)
    residuals = None if posterior.residuals is None else layout.collect(posterior.residuals)
    if residuals is not None and len(x):
        known = evaluate(posterior.far, x, posterior.far.x, posterior.model.kernel)
        residuals = np.concatenate([residuals, new - known])
    places = np.arange(before) if posterior.all_rows is None else np.asarray(posterior.all_rows.places)
    weights = np.zeros((after, posterior.weights.shape[1]), targets.dtype)
    weights[places] = posterior.far.layout.collect(posterior.weights)
    dtype = np.result_type(posterior.dtype, x.dtype)
    all_x = np.concatenate([layout.collect(posterior.x).astype(dtype, copy=False), x.astype(dtype, copy=False)])
    given = posterior.given
    if given is not None:
        place = np.concatenate([np.asarray(given.place), np.arange(before, after, dtype=np.int32)])
        given = GivenRows(place, join(given.noise, posterior.n, noise, len(x)))
    targets = np.concatenate([targets, new])
    return Known(all_x, places.astype(np.int32), targets, weights, residuals, draw_key, k, every, given)


def fits_into_near_field(posterior: Posterior, num_new: int) -> bool:
    """Whether the near field may take new rows: few rows lack far weights, or many lacked them before."""
    without, n = posterior.layout.n - posterior.num_far, posterior.layout.n
    many_before, few_after = (
        without > policy.UNSOLVED_SHARE * n,
        without + num_new <= policy.UNSOLVED_SHARE * (n + num_new),
    )
    return posterior.neighbours > 0 and (many_before or few_after)


def extend_near_field(posterior: Posterior, known: Known) -> Posterior:
    """The posterior with all known rows in its near field, and an unchanged far field."""
    layout, dtype = make_layout(len(known.x), posterior.layout.mesh), known.targets.dtype
    x = layout.place_own(posterior.model.kernel.stored(known.x[layout.own], posterior.dtype), repeat_first=True)
    targets = layout.place(known.targets, dtype)
    residuals = None if known.residuals is None else layout.place(known.residuals, dtype)
    solution = posterior.solution
    if known.residuals is not None:
        before = slice(0, posterior.layout.n)
        left = known.residuals.copy()
        left[before] = 0.0
        sizes = column_norms(known.targets[before]) / column_norms(known.targets)
        beyond = norms(left) / column_norms(known.targets)
        found = (np.hypot(share * sizes, beyond) for share in (solution.residual, solution.residual_upper))
        residual, upper = found
        solution = replace(solution, residual=residual, residual_upper=upper, residuals=None, state=None)
    rows = AllRows(x, known.places, layout)
    return replace(
        posterior,
        targets=targets,
        residuals=residuals,
        all_rows=rows,
        solution=solution,
        draw_key=known.draw_key,
        noise=None if known.noise.is_uniform else known.noise,
        given=known.given,
        scored=None,
    )
