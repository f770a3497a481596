"""Prior beliefs about hyperparameters, for data of any scale.

Every prior is log-normal, and its density is taken over the logarithm: the most probable value is the median. Values
are relative to the data: lengthscales and periods to the standard deviations of x, variances and noise to the variance
of y. The power of a rational quadratic kernel and the ratios of a `RoughSmooth` are pure numbers.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dualgp._checks import check_positive_number
from dualgp.gp import GaussianProcess
from dualgp.kernels.columns import View
from dualgp.kernels.scaled import Scaled, root_sums
from dualgp.learning.parameters import Parameters, Vector, entry_names


class LogNormal(NamedTuple):
    """log(value) ~ N(log(median), spread^2), for a value relative to the data.

    `root_d`: the median grows with the root of the number of inputs, as distances do (Hvarfner et al. 2024).
    """

    median: float
    spread: float
    root_d: bool = False


def check_prior(belief: Any, name: str) -> None:
    """Refuse what is no LogNormal of two positive numbers."""
    if not isinstance(belief, LogNormal):
        raise TypeError(f"The prior of {name!r} must be a LogNormal(median, spread), got {belief!r}.")
    check_positive_number(belief.median, f"the median of the prior of {name!r}")
    check_positive_number(belief.spread, f"the spread of the prior of {name!r}")


Priors = Mapping[str, LogNormal] | None

DEFAULT_PRIORS: Mapping[str, LogNormal] = {
    "lengthscale": LogNormal(math.exp(math.sqrt(2.0)), math.sqrt(3.0), root_d=True),
    "variance": LogNormal(1.0, 1.0),
    "scale": LogNormal(1.0, 1.0),
    "period": LogNormal(1.0, 2.0),
    "power": LogNormal(1.0, 1.5),
    "rough": LogNormal(0.3, 1.5),
    "stretch": LogNormal(1.0, 1.5),
    "noise": LogNormal(0.05, 2.0),
}
"""By the name of a parameter. BoTorch's for lengthscales; weak ones for the rest."""


NUMBERS = ("power", "rough", "stretch")  # pure numbers, not relative to the data


class Penalty(NamedTuple):
    """sum of ((u - centre) / spread)^2 / 2: minus the log density of the priors, up to a constant."""

    centre: Vector
    spread: Vector

    def __call__(self, vector: Vector) -> tuple[float, Vector]:
        """Value and gradient."""
        z = (vector - self.centre) / self.spread
        return 0.5 * float(z @ z), z / self.spread


def penalty(
    parameters: Parameters,
    priors: Priors,
    x_scale: Float[np.ndarray, " d"],
    y_variance: float,
    noise_unit: float = 1.0,
) -> Penalty:
    """The priors of the free parameters; a parameter without one gets a flat one (infinite spread)."""
    names = parameters.names
    known = {name.partition("[")[0].rsplit(".")[-1] for name in entry_names(parameters.template)} | set(DEFAULT_PRIORS)
    for name, prior in (priors or {}).items():
        if name not in known - {"mean"}:
            raise ValueError(f"There is no parameter {name!r} for a prior. Use {', '.join(sorted(known - {'mean'}))}.")
        if not isinstance(prior, LogNormal) or not (prior.median > 0 and prior.spread > 0):
            raise ValueError(
                f"The prior of {name!r} must be a LogNormal(median, spread) of positive numbers, got {prior!r}."
            )
    centre, spread = np.zeros(len(names)), np.full(len(names), np.inf)
    for i, name in enumerate(names):
        whole, _, place = name.partition("[")
        kind = whole.rsplit(".")[-1]
        belief = (priors or {}).get(kind)
        if belief is None:
            continue
        seen, is_length = scales_seen(parameters.template, whole, x_scale), kind.endswith(("lengthscale", "period"))
        units = {**dict.fromkeys(NUMBERS, 1.0), "noise": y_variance / noise_unit}
        unit = units.get(kind, y_variance)
        if is_length:
            unit = float(seen[int(place[:-1])] if place else np.median(seen))
        centre[i] = math.log(belief.median * unit) + (0.5 * math.log(len(seen)) if belief.root_d else 0.0)
        spread[i] = belief.spread
    return Penalty(centre, spread)


def scales_seen(template: GaussianProcess, name: str, scales: Float[np.ndarray, " d"]) -> Float[np.ndarray, " c"]:
    """The standard deviations of the inputs of a parameter's kernel: all columns, or those that it sees.

    Columns that share a lengthscale count once, with the scale of their distances.
    """
    part: Any = template
    for attribute in name.split("."):
        if attribute == "lengthscale" and isinstance(part, Scaled) and part.widths is not None:
            scales = root_sums(scales, part.widths)
        part = getattr(part, attribute)
        if isinstance(part, View):
            scales = part.scales_seen(scales)
    return scales
