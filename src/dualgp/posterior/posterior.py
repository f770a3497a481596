"""What one asks of a Gaussian process that has been conditioned on data, however it was solved."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import in_wide, is_traced, on_device, wide
from dualgp._checks import check_targets, check_values, refuse_traced
from dualgp._types import AnyArray, Columns, Points, RandomKey
from dualgp.operators.cross import CrossProduct
from dualgp.operators.layout import Layout, Local
from dualgp.operators.noise import Noise
from dualgp.operators.tiles import precision
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.predictor import Predictor
from dualgp.posterior.prior import PriorPaths
from dualgp.posterior.sentences import report_size, report_solution

if TYPE_CHECKING:
    from dualgp.gp import GaussianProcess
    from dualgp.solvers.base import Solution


class LeftOut(NamedTuple):
    """Rows that a short budget left no time for: inputs, targets less the mean, and their places in the data."""

    x: AnyArray
    y: Float[AnyArray, " rows"]
    places: Int[AnyArray, " rows"]


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(ABC):
    """A Gaussian process conditioned on data. Made by `GaussianProcess.condition`.

    `far` is k(x, X) @ weights, as the operator made it; `weights` and `targets` have 1 + s columns: the mean's, then
    those of s zero-mean sample deviations phi(X) @ w + epsilon. A deviation is `prior(x) - k(x, X) @ weights`, and a
    sample is the mean plus a deviation. `dtype`: in which the inputs were solved for (an exact posterior predicts in
    float64 whatever that was). `left_out`: rows that were not solved for, if any.
    """

    model: GaussianProcess
    far: CrossProduct
    targets: Columns
    prior: PriorPaths | None
    solution: Solution
    dtype: str
    left_out: LeftOut | None = None

    @abstractmethod
    def predict(self, x: Any, *, noise: bool = False) -> tuple[Float[AnyArray, " m"], Float[AnyArray, " m"]]:
        """Mean and standard deviation together, in one pass over the data; see `std`."""

    @abstractmethod
    def covariance(self, x: Any, *, noise: bool = False) -> Float[np.ndarray, "m m"]:
        """The joint posterior covariance at (m, d) points, of the function or of new observations: m^2 numbers."""

    @property
    @abstractmethod
    def has_std(self) -> bool:
        """Whether there are standard deviations: exact ones, or samples to have them from."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether means and standard deviations are those of all rows, up to rounding in float64."""

    @abstractmethod
    def leave_one_out(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Mean and standard deviation of each observation given all others: a check that needs no held-out data.

        With q = diag(A^-1): y - weights / q and 1 / sqrt(q).

        To compare models::

            before, after = (dg.metrics.nll(y, *model.condition(x, y, key=key).leave_one_out()) for model in models)
        """

    @abstractmethod
    def _explained(self, x: Any) -> Float[np.ndarray, " m"]:
        """An upper bound on k(x, x) less the exact posterior variance."""

    @property
    def x(self) -> Points:
        """The rows that have weights."""
        return self.far.x

    @property
    def weights(self) -> Columns:
        """(K + noise I)^-1 @ targets, as far as it was solved."""
        return self.far.weights

    @property
    def layout(self) -> Layout:
        """Where the rows of `x`, `targets` and `weights` live."""
        return self.far.layout

    @property
    def n(self) -> int:
        """The number of data."""
        return self.layout.n + (0 if self.left_out is None else len(self.left_out.y))

    @property
    def num_samples(self) -> int:
        """How many sample functions there are."""
        return self.weights.shape[1] - 1

    @property
    def d(self) -> int:
        """The number of input dimensions."""
        return self.x.shape[1]

    @cached_property
    def predictor(self) -> Predictor:
        """What forms mean and deviations."""
        return Predictor(self.model.mean, self.prior, self.far)

    @cached_property
    def samples(self) -> SamplePaths:
        """The posterior functions, to be called and differentiated."""
        with wide(), jax.ensure_compile_time_eval():  # they are kept, also if they are first used inside `jax.jit`
            paths = self.predictor.functions()
        # A float64 array of JAX's is not safe where 64-bit types are off; one of NumPy's may be passed to `jax.jit`.
        return _as_numpy(paths, np.float64) if isinstance(self.layout, Local) else paths

    def mean(self, x: Any) -> Float[AnyArray, " m"]:
        """The posterior mean at (m, d) points."""
        return self._mean_predictor.mean(x)

    @cached_property
    def _mean_predictor(self) -> Predictor:
        with wide(), jax.ensure_compile_time_eval():
            return self.predictor.mean_alone()

    def std(self, x: Any, *, noise: bool = False) -> Float[AnyArray, " m"]:
        """The posterior standard deviation of the function, or with `noise=True` of a new observation.

        Exact where the solver was Cholesky, outside `jax.jit` and its kin. Otherwise the root mean square of the sample
        deviations: its own standard error is 1 / sqrt(2 s) of it, 9 % for 64 samples.
        """
        return self.predict(x, noise=noise)[1]

    def log_prob(self, x: Any, y: Any) -> Float[AnyArray, " m"]:
        """log N(y; mean(x), std(x)^2 + noise) for each point."""
        mean, std = self.predict(x, noise=True)
        y = check_targets(y, mean.shape[0])
        return -0.5 * ((y - mean) / std) ** 2 - (jnp if is_traced(std) else np).log(std) - 0.5 * math.log(2 * math.pi)

    def update(self, x: Any, y: Any, *, key: RandomKey | None = None, **settings: Any) -> Posterior:
        """The posterior given more data as well, solved from where this one ended.

        Settings: `solver`, `memory`, `max_seconds`, `max_passes`, `checkpoint`, `progress`, as for `condition`.
        """
        return self.model.extend(self, x, y, key=key, **settings)

    def refine(self, *, key: RandomKey, **settings: Any) -> Posterior:
        """The same posterior solved further from where it ended, e.g. `refine(solver=BlockDescent(tol=1e-3), key=key)`.

        Rows that were left out for lack of time take part. Settings as for `update`; without a solver, the one that
        made this posterior has another go.
        """
        return self.model.refine(self, key=key, **settings)

    @in_wide
    def gathered(self) -> Posterior:
        """The same posterior in the memory of one host, as `save` writes it. On many hosts each of them must ask."""
        layout = self.layout
        if isinstance(layout, Local):
            return self
        collect = lambda leaf: layout.collect(leaf) if layout.holds(leaf) else leaf  # noqa: E731
        solver, weights = jax.tree.map(collect, (self.solution.solver, self.solution.weights))
        solution = dataclasses.replace(self.solution, solver=solver, weights=weights, state=None)
        targets = jnp.asarray(layout.collect(self.targets))
        return dataclasses.replace(self, solution=solution, far=self.far.gathered(), targets=targets)

    @in_wide
    def error_bound(self, x: Any = None) -> float | Float[np.ndarray, " m"]:
        """A bound on `|mean - exact posterior mean|` that holds at every x, or a sharper one at the given points.

        With residual r of the mean's weights: sqrt(sup k) ||r|| / (2 sqrt(noise)) everywhere, and at x the smaller of
        sqrt(k(x, x)) ||r|| / (2 sqrt(noise)) and sqrt(k(x, x) - var(x)) ||r|| / sqrt(noise) (var where it is known
        exactly). It is infinite everywhere for a kernel whose variance has no bound: ask at points.

        Loose, and as sure as ||r|| is: `solution.residual_upper`, an upper limit of 95 % confidence, or certain but for
        rounding where all rows were checked. It contains the rounding of the mean itself, at the precision it has.
        """
        norm = float(np.linalg.norm(np.asarray(self._host_targets, np.float64)))
        root = float(self.solution.residual_upper[0]) * norm / math.sqrt(Noise(self.model.noise).smallest)
        weights = self.layout.read_rows(self.weights)[:, 0].astype(np.float64)
        rounding = float(np.finfo(precision(self.x)).eps) * float(np.linalg.norm(weights))
        if x is None:
            largest = self.model.kernel.largest_variance()
            return math.sqrt(largest) * root / 2 + largest * rounding
        points = on_device(self.model.kernel.points(x, "x", self.d), precision(self.x))
        variance = np.asarray(self.model.kernel.diagonal(points), np.float64)
        factor = np.minimum(np.sqrt(self._explained(x)), np.sqrt(variance) / 2)
        bound = factor * root + variance * rounding
        check_values(bound, x)
        return bound

    @property
    def _host_targets(self) -> np.ndarray:
        """The mean's targets of all rows."""
        targets = self.layout.collect(self.targets)[:, 0]
        return targets if self.left_out is None else np.concatenate([targets, self.left_out.y])

    def __getstate__(self) -> dict[str, Any]:
        """NumPy arrays, because a float64 jax.Array would be read back as float32 where 64-bit types are off."""
        gathered = self.gathered()
        fields = {field.name: getattr(gathered, field.name) for field in dataclasses.fields(self)}
        solver = _as_numpy(gathered.solution.solver)
        fields["solution"] = dataclasses.replace(gathered.solution, state=None, solver=solver)
        return _as_numpy(fields)

    def __setstate__(self, state: dict[str, Any]) -> None:
        with wide():
            arrays = {name: jax.tree.map(jnp.asarray, state[name]) for name in ("far", "targets")}
        self.__dict__.update(state | arrays)

    def __repr__(self) -> str:
        shape = f"n={self.n}, d={self.d}, num_samples={self.num_samples}"
        return f"Posterior({shape}, kernel={self.model.kernel!r}, {self.solution.result.value})"

    def report(self) -> str:
        """What was done, how good it is and what to do next, in plain words."""
        model = f"Kernel {self.model.kernel!r}, noise variance {float(self.model.noise):.4g}."
        return "\n".join([self.report_size(), model, *self.report_solution()])

    def report_size(self) -> str:
        """The sentence of the report about how much there is of everything."""
        return report_size(self)

    def report_solution(self, unit: float = 1.0) -> list[str]:
        """The sentences of the report about the solution; `unit` is what 1 means in the data's own units."""
        return report_solution(self, unit)

    def _with_left_out(self, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predictions of the rows with weights and, as new observations, of those left out: in the data's order."""
        if self.left_out is None:
            return mean, std
        is_left_out = np.zeros(self.n, bool)
        is_left_out[np.asarray(self.left_out.places)] = True
        whole = np.empty((2, self.n))
        whole[:, ~is_left_out], whole[:, is_left_out] = (mean, std), self.predict(self.left_out.x, noise=True)
        return whole[0], whole[1]


def with_noise(posterior: Posterior, mean: AnyArray, variance: AnyArray, noise: bool) -> tuple[AnyArray, AnyArray]:
    """Mean and standard deviation, of the function or of a new observation."""
    std = (variance + (float(posterior.model.noise) if noise else 0.0)) ** 0.5
    return mean, std if is_traced(std) else std.astype(mean.dtype)


def refuse_traced_covariance(x: Any) -> None:
    """A joint covariance is for the host."""
    refuse_traced("Posterior.covariance", x)


def _as_numpy(tree: Any, dtype: Any = None) -> Any:
    """The tree with NumPy arrays instead of JAX's: all, or those of one dtype."""
    is_meant = lambda leaf: isinstance(leaf, jax.Array) and dtype in (None, leaf.dtype)  # noqa: E731
    return jax.tree.map(lambda leaf: np.asarray(leaf) if is_meant(leaf) else leaf, tree)
