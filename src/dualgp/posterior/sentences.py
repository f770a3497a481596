"""What was done and how good it is, in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dualgp.operators.tiles import precision

if TYPE_CHECKING:
    from dualgp.posterior.posterior import Posterior


def report_size(posterior: Posterior) -> str:
    """How much there is of everything."""
    num = posterior.num_samples
    functions = f"{num} function samples" if num else "no function samples"
    if posterior.is_exact:
        functions += ", exact standard deviations"
    elif num:
        functions += f"; standard deviations known to about {100 / math.sqrt(2 * num):.0f} %"
    rows = f"all {posterior.n:,}" if posterior.left_out is None else f"{posterior.layout.n:,} of {posterior.n:,}"
    devices = "" if posterior.layout.mesh is None else f" on {posterior.layout.num_devices} devices"
    size = f"{rows} points in {posterior.d} dimension(s), {precision(posterior.x)} arithmetic{devices}"
    return f"Gaussian process on {size}; {functions}."


def report_solution(posterior: Posterior, unit: float = 1.0) -> list[str]:
    """How well the equations were solved; `unit` is what 1 means in the data's own units."""
    solution = posterior.solution
    lines = [
        solution.message,
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
