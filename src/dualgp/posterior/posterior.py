"""The interface of a Gaussian process conditioned on data, for all solvers."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import in_wide, is_traced, wide
from dualgp._checks import check_outputs
from dualgp._types import AnyArray, Columns, Points, RandomKey
from dualgp.operators import policy
from dualgp.operators.cross import CrossProduct
from dualgp.operators.layout import Layout, Local
from dualgp.operators.merging import GivenRows
from dualgp.operators.nearest import NearestRows
from dualgp.operators.noise import Noise
from dualgp.posterior.bounds import error_bound
from dualgp.posterior.calibration import Calibration
from dualgp.posterior.near import NearField
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.predictor import Predictor
from dualgp.posterior.prior import PriorPaths, draw_targets
from dualgp.posterior.quantiles import Quantiles
from dualgp.posterior.sentences import report_noise, report_size, report_solution

if TYPE_CHECKING:
    from dualgp.gp import GaussianProcess
    from dualgp.kernels import Kernel
    from dualgp.posterior.terms import TermPosterior
    from dualgp.solvers.base import Solution


class AllRows(eqx.Module):
    """All rows of the data, if only the rows `places` have far weights."""

    x: Points
    places: Int[AnyArray, " rows"]
    layout: Layout = eqx.field(static=True)


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Quantiles):
    """A Gaussian process conditioned on data. Made by `GaussianProcess.condition`.

    `far` is k(x, G) @ weights for the rows G that have weights: all rows if `all_rows` is None. `targets` (n, k + s)
    has the targets of the means of k outputs, then those of s zero-mean sample deviations, phi(X) @ w + epsilon.
    `residuals` are targets - A @ weights; None if they are not known, or if no row has a weight. `neighbours`: the
    number of nearest rows of the near field; 0 for no near field. `dtype`: the precision of the solve (an exact
    posterior predicts in float64). `draw_key`: the randomness of epsilon. If no row has a weight, `targets` has the
    columns of the means alone, and functions are drawn at the data on first use. `noise`: the variances of the rows;
    None for the model's. `given`: the rows before those with equal inputs were merged. `scored`: the calibration, if
    it is known.
    """

    model: GaussianProcess
    far: CrossProduct
    targets: Columns
    prior: PriorPaths | None
    solution: Solution
    dtype: str
    residuals: Columns | None = None
    neighbours: int = 0
    all_rows: AllRows | None = None
    draw_key: AnyArray | None = None
    noise: Noise | None = None
    given: GivenRows | None = None
    scored: Calibration | None = None

    @abstractmethod
    def predict(self, x: Any, *, noise: Any = False) -> tuple[Float[AnyArray, "m ..."], Float[AnyArray, " m"]]:
        """Mean and standard deviation together, in one pass over the data; see `std`."""

    @abstractmethod
    def covariance(self, x: Any, *, noise: Any = False) -> Float[np.ndarray, "m m"]:
        """The joint posterior covariance at (m, d) points, of the function or of new observations: m^2 numbers."""

    @property
    @abstractmethod
    def has_std(self) -> bool:
        """Whether standard deviations are known, exactly, from neighbours or from samples."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether means and standard deviations are those of all rows, up to rounding in float64."""

    @abstractmethod
    def _leave_rows_out(self, rows: Any = None) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
        """Means of each row of `x` given all others, and variances of these predictions, the row's noise included."""

    def leave_one_out(
        self, *, groups: bool = False, rows: Any = None
    ) -> tuple[Float[np.ndarray, "n ..."], Float[np.ndarray, " n"]]:
        """Mean and standard deviation of each observation given all others: a check that needs no held-out data.

        y - weights / q and 1 / sqrt(q) with q = diag(A^-1). Rows with equal inputs are left out together, except those
        that an update has added. With `groups` the answer has one row for them, that of `x`, whose observation is their
        mean; `rows` are then the only ones of these to look at.

        To compare models::

            before, after = (dg.metrics.nll(y, *model.condition(x, y, key=key).leave_one_out()) for model in models)
        """
        mean, variance = self._leave_rows_out(rows if groups else None)
        if self.given is not None and not groups:
            place, rows = np.asarray(self.given.place), np.arange(self.layout.n)
            own = np.asarray(self.row_noise.diagonal(rows, np.float64))
            noise = np.asarray(self.given.noise.diagonal(np.arange(len(place)), np.float64))
            mean, variance = mean[place], np.maximum(variance - own, 0.0)[place] + noise
        return mean[:, 0] if self.num_outputs == 1 else mean, np.sqrt(variance)

    @abstractmethod
    def _explained(self, x: Any) -> Float[np.ndarray, " m"]:
        """An upper bound on k(x, x) less the exact posterior variance."""

    @property
    def x(self) -> Points:
        """All rows of the data, those with equal inputs merged."""
        return self.far.x if self.all_rows is None else self.all_rows.x

    @property
    def weights(self) -> Columns:
        """The computed (K + noise I)^-1 @ targets, for the rows that have weights."""
        return self.far.weights

    @property
    def layout(self) -> Layout:
        """Where the rows of `x`, `targets` and `residuals` live."""
        return self.far.layout if self.all_rows is None else self.all_rows.layout

    @property
    def n(self) -> int:
        """The number of data."""
        return self.layout.n if self.given is None else len(self.given.place)

    @property
    def row_noise(self) -> Noise:
        """The variances of the noise of the rows of `x`."""
        return Noise(self.model.noise) if self.noise is None else self.noise

    @property
    def num_far(self) -> int:
        """How many rows have far weights."""
        return self.far.layout.n

    @property
    def num_samples(self) -> int:
        """How many sample functions there are."""
        return 0 if self.prior is None else self.prior.weights.shape[1]

    @property
    def num_outputs(self) -> int:
        """How many outputs y has, with a column of `weights` and `targets` for each."""
        return self.weights.shape[1] - self.num_samples

    @property
    def d(self) -> int:
        """The number of input dimensions."""
        return self.x.shape[1]

    @cached_property
    def predictor(self) -> Predictor:
        """The function that computes mean and deviations."""
        near = self._near_field(self._drawn_targets)
        return Predictor(self.model.mean, self.prior, self.far, near, self.num_outputs)

    @cached_property
    def mean_predictor(self) -> Predictor:
        """The function that computes means, and variances given the neighbours alone, without drawing functions."""
        k = self.num_outputs
        with wide(), jax.ensure_compile_time_eval():
            far = eqx.tree_at(lambda far: far.weights, self.far, self.far.weights[:, :k])
            near = self._near_field(self.targets)
            near = near and near.map_columns(lambda columns: columns[:, :k])
            return Predictor(self.model.mean, None, far, near, k)

    def _near_field(self, targets: Columns) -> NearField | None:
        if not self.neighbours:
            return None
        return NearField(self.row_noise, self.x, self.residuals, targets, self.neighbours, self.search)

    @cached_property
    def search(self) -> NearestRows:
        """The search for nearest rows; its tree is built at the first query."""
        return NearestRows(self.model.kernel, self.x, self.layout)

    @cached_property
    def _drawn_targets(self) -> Columns:
        """Targets with all columns."""
        if self.prior is None or self.draw_key is None or self.targets.shape[1] > self.num_outputs:
            return self.targets
        layout, noise = self.layout, self.row_noise
        own, first = (layout.read_own(array) for array in (self.x, self.targets))
        drawn = draw_targets(self.prior, self.model.kernel, noise, self.draw_key, own, layout.n, layout.own)
        with wide():
            return layout.place_own(np.concatenate([first, drawn.astype(first.dtype)], axis=1))

    @cached_property
    def samples(self) -> SamplePaths:
        """The posterior functions, to be called and differentiated.

        If the far field has converged to a residual of 1e-2, they are prior plus far field, which is fast. Otherwise
        the near field corrects them.
        """
        is_corrected = float(self.solution.residual.max()) > policy.DEFAULT_TOL
        with wide(), jax.ensure_compile_time_eval():  # they are cached, also if they are first used inside `jax.jit`
            paths = self.predictor.functions(is_corrected)
        # NumPy arrays may be passed to `jax.jit` where 64-bit types are off; float64 JAX arrays may not.
        return _as_numpy(paths, np.float64) if isinstance(self.layout, Local) else paths

    def mean(self, x: Any) -> Float[AnyArray, "m ..."]:
        """The posterior mean at (m, d) points: (m,), or (m, k) for several outputs."""
        return self.mean_predictor.mean(x)

    def std(self, x: Any, *, noise: Any = False) -> Float[AnyArray, " m"]:
        """The posterior standard deviation of the function, or with `noise=True` of a new observation.

        A new observation has the model's noise, or the variances (m,) that are given as `noise`. Outputs share it.

        Exact for the solver `Cholesky`, outside JAX transformations. Otherwise from the sample deviations and, with a
        near field, from the variance given the neighbours alone, an upper bound. Without samples it is that bound.
        """
        return self.predict(x, noise=noise)[1]

    def term(self, term: Kernel | int) -> TermPosterior:
        """Mean, standard deviation and functions of one term of a sum of kernels, or of the term with this number.

        The means of all terms add up to `mean` less the model's constant.
        """
        from dualgp.posterior.terms import posterior_of_term

        return posterior_of_term(self, term)

    def output(self, number: int) -> Posterior:
        """The posterior of one of several outputs. All outputs have the same deviations from their means."""
        k = self.num_outputs
        if not isinstance(number, int | np.integer) or not 0 <= number < k:
            raise IndexError(f"There are {k} output(s), numbered from 0, got {number}.")
        with wide():
            chosen = [number, *range(k, self.weights.shape[1])]
            take = lambda array: None if array is None else array[:, np.array(chosen)[: array.shape[1] - k + 1]]  # noqa: E731
            far = eqx.tree_at(lambda far: far.weights, self.far, take(self.far.weights))
            solution, mean = self.solution, np.broadcast_to(self.model.mean, (k,))[number]
            shown = {name: getattr(solution, name)[chosen] for name in ("residual", "residual_upper")}
            solution = dataclasses.replace(solution, weights=far.weights, residuals=None, state=None, **shown)
            changes: dict[str, Any] = {"targets": take(self.targets), "residuals": take(self.residuals)}
        model = dataclasses.replace(self.model, mean=mean)
        return dataclasses.replace(self, model=model, far=far, solution=solution, **changes)

    def log_prob(self, x: Any, y: Any, *, noise: Any = True) -> Float[AnyArray, "m ..."]:
        """log N(y; mean(x), std(x)^2 + noise) for each point, and each output."""
        mean, std = self.predict(x, noise=noise)
        y = check_outputs(y, mean.shape[0])
        std = std if mean.ndim == 1 else std[:, None]
        return -0.5 * ((y - mean) / std) ** 2 - (jnp if is_traced(std) else np).log(std) - 0.5 * math.log(2 * math.pi)

    def update(self, x: Any, y: Any, *, noise: Any = None, key: RandomKey | None = None, **settings: Any) -> Posterior:
        """The posterior given further data, solved starting from this one.

        `noise`: the variances of the new rows; by default the model's. Settings: `solver`, `memory`, `max_seconds`,
        `max_passes`, `checkpoint`, `progress`, as for `condition`.
        """
        return self.model.extend(self, x, y, noise=noise, key=key, **settings)

    def refine(self, *, key: RandomKey, **settings: Any) -> Posterior:
        """The same posterior solved further, e.g. `refine(solver=BlockDescent(tol=1e-3), key=key)`.

        If only some rows have far weights, more rows get them: twice as many, or as many as a limit allows. Settings as
        for `update`; without a solver, the one that made this posterior continues, to a residual of 1e-2.
        """
        return self.model.refine(self, key=key, **settings)

    @in_wide
    def gathered(self) -> Posterior:
        """The same posterior in the memory of one host, as `save` writes it. Every process must call it."""
        layout = self.layout
        if isinstance(layout, Local):
            return self
        collect = lambda leaf: layout.collect(leaf) if layout.holds(leaf) else leaf  # noqa: E731
        solver, weights = jax.tree.map(collect, (self.solution.solver, self.solution.weights))
        solution = dataclasses.replace(self.solution, solver=solver, weights=weights, residuals=None, state=None)
        rows = None
        if self.all_rows is not None:
            rows = AllRows(jnp.asarray(layout.collect(self.x)), self.all_rows.places, Local(layout.n))
        targets, residuals = (
            None if array is None else jnp.asarray(layout.collect(array)) for array in (self.targets, self.residuals)
        )
        changes: dict[str, Any] = {"targets": targets, "residuals": residuals, "all_rows": rows}
        return dataclasses.replace(self, solution=solution, far=self.far.gathered(), **changes)

    def error_bound(self, x: Any = None) -> float | Float[np.ndarray, " m"]:
        """A bound on `|mean - exact posterior mean|` that holds at every x, or a sharper one at the given points.

        It holds if `solution.residual_upper` does: with 95 % confidence, or up to rounding if all rows were checked
        (bounds.py). It is often much larger than the error. For a kernel of unbounded variance it is infinite
        everywhere, and finite at points.
        """
        return error_bound(self, x)

    @property
    def _host_targets(self) -> Float[np.ndarray, "n k"]:
        """The targets of the means, of all rows."""
        return self.layout.collect(self.targets)[:, : self.num_outputs]

    def __getstate__(self) -> dict[str, Any]:
        """The state with NumPy arrays: a float64 jax.Array would be read back as float32 where 64-bit types are off."""
        gathered = self.gathered()
        fields = {field.name: getattr(gathered, field.name) for field in dataclasses.fields(self)}
        solver = _as_numpy(gathered.solution.solver)
        fields["solution"] = dataclasses.replace(gathered.solution, state=None, residuals=None, solver=solver)
        return _as_numpy(fields)

    def __setstate__(self, state: dict[str, Any]) -> None:
        with wide():
            arrays = {name: jax.tree.map(jnp.asarray, state[name]) for name in ("far", "targets", "residuals")}
        self.__dict__.update(state | arrays)

    def __repr__(self) -> str:
        outputs = "" if self.num_outputs == 1 else f", {self.num_outputs} outputs"
        shape = f"n={self.n}, d={self.d}{outputs}, num_samples={self.num_samples}"
        return f"Posterior({shape}, kernel={self.model.kernel!r}, {self.solution.result.value})"

    def report(self) -> str:
        """What was done, how good it is and what to do next, in plain words."""
        model = f"Kernel {self.model.kernel!r}, {report_noise(self)}."
        return "\n".join([self.report_size(), model, *self.report_solution()])

    def report_size(self) -> str:
        """The sentence of the report about numbers of rows, inputs and functions."""
        return report_size(self)

    def report_solution(self, unit: float = 1.0) -> list[str]:
        """The sentences of the report about the solution; `unit` is the size of 1 in the units of the data."""
        return report_solution(self, unit)


def _as_numpy(tree: Any, dtype: Any = None) -> Any:
    """The tree with JAX arrays, all or those of one dtype, replaced by NumPy arrays."""
    is_meant = lambda leaf: isinstance(leaf, jax.Array) and dtype in (None, leaf.dtype)  # noqa: E731
    return jax.tree.map(lambda leaf: np.asarray(leaf) if is_meant(leaf) else leaf, tree)
