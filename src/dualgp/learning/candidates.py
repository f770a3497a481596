"""The kernels that learning compares, and the result of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualgp._types import AnyArray
from dualgp.gp import GaussianProcess
from dualgp.kernels import RBF, Laplace, Matern12, Matern32, Matern52, RoughSmooth
from dualgp.kernels.scaled import Scaled

if TYPE_CHECKING:
    from dualgp.learning.priors import Priors
    from dualgp.learning.problem import Problem

# Other kernels, and the lengthscale at which each falls about as fast as the first: the search corrects it.
STRETCH: dict[type[Scaled], float] = {
    Matern12: 2.0,
    Matern32: 1.0,
    Matern52: 0.8,
    RBF: 0.6,
    RoughSmooth: 1.0,
    Laplace: 4.0,
}
# Worth their seconds on tables of 13,500 rows and more (benchmarks/candidates.py); on nine of 2,400 to 6,400 rows they
# were never chosen (benchmarks/tables.py).
FOR_MANY_ROWS, MANY_ROWS = (RoughSmooth, Laplace), 10_000

MARGIN = 0.005  # nats a row: on precip 0.004 more for Matern-5/2 come with 2 % more error (benchmarks/near_far.py)


class Choice(NamedTuple):
    """How probable rows were by each kernel: nats a row, on rows kept aside where there are many."""

    chosen: str
    values: dict[str, float]

    @property
    def lost(self) -> dict[str, float]:
        """How much worse than the chosen one each was, the best first."""
        order = sorted(self.values, key=lambda name: (name == self.chosen, self.values[name]), reverse=True)
        return {name: self.values[self.chosen] - self.values[name] for name in order}

    def __str__(self) -> str:
        others = ", ".join(f"{name} {lost:.2g}" for name, lost in self.lost.items() if name != self.chosen)
        return f"Kernel: {self.chosen}, by the likelihood; nats a row that others lost: {others}."


def pick(values: dict[str, float]) -> Choice:
    """The first of the kernels whose value is within MARGIN of the best."""
    best = max(values.values())
    return Choice(next(name for name, value in values.items() if value >= best - MARGIN), values)


def default_model(x: AnyArray, y: AnyArray) -> GaussianProcess:
    """Matern-3/2 with a lengthscale for each column, on the scale of the data."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    scales, variance = x.std(axis=0), float(np.mean(np.var(y, axis=0))) or 1.0
    scales = np.where(scales > 0, scales, 1.0) * np.sqrt(x.shape[1])
    return GaussianProcess(Matern32(scales, variance), 0.1 * variance, y.mean(axis=0))


def with_rivals(problem: Problem, priors: Priors, fixed: Sequence[str]) -> Problem:
    """The problem of learning a stationary kernel as well: `rivals` makes those of the other kernels."""
    from dualgp.learning.problem import make_problem

    own: Any = problem.parameters.template.kernel
    if type(own) not in STRETCH:
        raise ValueError(f"Other kernels can be compared with {_names(STRETCH)}, not with {type(own).__name__}.")

    def rival(kind: type[Scaled], model: GaussianProcess) -> Problem:
        known: Any = model.kernel
        stretch = 1.0 if "lengthscale" in fixed else STRETCH[kind] / STRETCH[type(own)]
        other = replace(model, kernel=kind(known.lengthscale * stretch, known.variance, widths=known.widths))
        made = make_problem(other, problem.rows, priors, fixed, problem.noise_unit)
        return replace(
            problem,
            parameters=made.parameters,
            penalty=made.penalty,
            typical=made.typical,
            bounds=made.bounds,
            name=kind.__name__,
        )

    left_out = (type(own), *(FOR_MANY_ROWS if problem.n < MANY_ROWS else ()))
    kinds = [kind for kind in STRETCH if kind not in left_out]
    rivals: Callable = lambda model: [rival(kind, model) for kind in kinds]  # noqa: E731
    return replace(problem, name=type(own).__name__, rivals=rivals)


def _names(kinds: Sequence | dict) -> str:
    return ", ".join(kind.__name__ for kind in kinds)
