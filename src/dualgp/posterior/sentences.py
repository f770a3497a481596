"""The sentences of a posterior's report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dualgp.operators.tiles import precision

if TYPE_CHECKING:
    from dualgp.posterior.posterior import Posterior


def report_size(posterior: Posterior) -> str:
    """Numbers of rows, inputs and functions, and which fields there are."""
    num, near = posterior.num_samples, posterior.neighbours
    functions = f"{num} function samples" if num else "no function samples"
    if posterior.is_exact:
        functions += ", exact standard deviations"
    elif near and not num:
        functions += "; standard deviations are upper bounds"
    elif num and not near:
        functions += f"; standard deviations known to about {100 / math.sqrt(2 * num):.0f} %"
    devices = "" if posterior.layout.mesh is None else f" on {posterior.layout.num_devices} devices"
    rows = "" if posterior.given is None else f" ({posterior.layout.n:,} different inputs)"
    outputs = "" if posterior.num_outputs == 1 else f", {posterior.num_outputs} outputs"
    where = f"in {posterior.d} dimension(s){outputs}, {precision(posterior.x)} arithmetic{devices}"
    size = f"all {posterior.n:,} points{rows} {where}"
    return f"Gaussian process on {size}; {functions}.{_fields(posterior)}"


def _fields(posterior: Posterior) -> str:
    """Which rows a prediction looks at."""
    near, far = posterior.neighbours, posterior.num_far
    if not near:
        return "" if far == posterior.layout.n else f" {far:,} of them have weights."
    rows = "none" if not far else "all rows" if far == posterior.layout.n else f"{far:,} random rows"
    return f" Far field: {rows}; near field: the {near} nearest of all rows."


def report_noise(posterior: Posterior) -> str:
    """The noise of new observations, and that of the rows where they have their own."""
    noise = posterior.row_noise if posterior.given is None else posterior.given.noise
    new = f"noise variance {float(posterior.model.noise):.4g}"
    return new if noise.is_uniform else f"{new}, of the rows {noise.smallest:.4g} to {noise.largest:.4g}"


def report_solution(posterior: Posterior, unit: float = 1.0) -> list[str]:
    """How well the equations were solved; `unit` is the size of 1 in the units of the data."""
    solution = posterior.solution
    if not posterior.num_far:
        return [solution.message, *_report_rows_aside(posterior, unit)]
    lines = [
        solution.message,
        *_report_rows_aside(posterior, unit),
        f"The equations hold to {float(solution.residual_upper.max()):.2g} of the data's size (95 % upper limit, worst "
        f"column); {solution.passes:.3g} passes over the kernel matrix in {solution.seconds:.3g} s.",
    ]
    bound, size = posterior.error_bound(), float(np.std(posterior._host_targets))
    if bound < size:
        lines.append(
            f"The mean is within {unit * bound:.2g} of the exact one everywhere, with the confidence of that limit "
            "(often much closer)."
        )
    else:
        lines.append("No useful certificate for the mean at this residual; a smaller tol gives one.")
    return lines


def _report_rows_aside(posterior: Posterior, unit: float) -> list[str]:
    """How well the rows kept aside were predicted."""
    score = posterior.solution.validation
    if score is None:
        return []
    return [f"{score.rows:,} random rows, predicted while they were kept aside: {score.in_units(unit)}."]
