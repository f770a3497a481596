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
from dualgp.operators.noise import Noise
from dualgp.posterior import AllRows, Posterior
from dualgp.posterior.prior import draw_targets
from dualgp.solvers.residual import column_norms, norms


@dataclass(frozen=True, eq=False)
class Known:
    """All rows, and what is known of them: targets, weights (zero for rows that have none) and residuals.

    `places`: the rows that have weights. `targets` has the mean's column alone where no functions were drawn yet.
    """

    x: np.ndarray
    places: Int[np.ndarray, " places"]
    targets: Float[np.ndarray, "n known"]
    weights: Float[np.ndarray, "n columns"]
    residuals: Float[np.ndarray, "n columns"] | None
    draw_key: np.ndarray | None

    def start(self, dtype: np.dtype) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Weights and their residuals to start a solve from, if there are any."""
        if not len(self.places):
            return None, None
        return self.weights.astype(dtype), None if self.residuals is None else self.residuals.astype(dtype)


def gather(posterior: Posterior, x: np.ndarray, y: Float[np.ndarray, " m"], key: RandomKey | None) -> Known:
    """What is known of the rows of `posterior` and of new ones."""
    layout, before, after = posterior.layout, posterior.n, posterior.n + len(x)
    draw_key: Any = posterior.draw_key
    if draw_key is None and key is not None:
        draw_key = np.ravel(jax.random.key_data(subkey(key, "noise")))[:2]
    targets, columns = layout.collect(posterior.targets), posterior.targets.shape[1]
    new = np.empty((len(x), columns), targets.dtype)
    new[:, 0] = y - float(posterior.model.mean)
    if posterior.prior is not None and columns > 1 and len(x):
        noise, rows = Noise(posterior.model.noise), np.arange(before, after)
        new[:, 1:] = draw_targets(posterior.prior, posterior.model.kernel, noise, draw_key, x, after, rows)
    residuals = None if posterior.residuals is None else layout.collect(posterior.residuals)
    if residuals is not None and len(x):
        known = evaluate(posterior.far, x, posterior.far.x, posterior.model.kernel)
        residuals = np.concatenate([residuals, new - known])
    places = np.arange(before) if posterior.all_rows is None else np.asarray(posterior.all_rows.places)
    weights = np.zeros((after, posterior.weights.shape[1]), targets.dtype)
    weights[places] = posterior.far.layout.collect(posterior.weights)
    dtype = np.result_type(posterior.dtype, x.dtype)
    all_x = np.concatenate([layout.collect(posterior.x).astype(dtype, copy=False), x.astype(dtype, copy=False)])
    return Known(all_x, places.astype(np.int32), np.concatenate([targets, new]), weights, residuals, draw_key)


def has_room(posterior: Posterior, num_new: int) -> bool:
    """Whether the near field can take new rows: as long as few have no far weights, or if many had none before."""
    without, n = posterior.n - posterior.num_far, posterior.n
    many_before, few_after = (
        without > policy.UNSOLVED_SHARE * n,
        without + num_new <= policy.UNSOLVED_SHARE * (n + num_new),
    )
    return posterior.neighbours > 0 and (many_before or few_after)


def extend_near_field(posterior: Posterior, known: Known) -> Posterior:
    """The posterior with all known rows in its near field, and the far field that it has."""
    layout, dtype = make_layout(len(known.x), posterior.layout.mesh), known.targets.dtype
    x = layout.place_own(posterior.model.kernel.stored(known.x[layout.own], posterior.dtype), repeat_first=True)
    targets = layout.place(known.targets, dtype)
    residuals = None if known.residuals is None else layout.place(known.residuals, dtype)
    solution = posterior.solution
    if known.residuals is not None:
        before = slice(0, posterior.n)
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
        scored=None,
    )
