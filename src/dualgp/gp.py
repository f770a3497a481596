"""GaussianProcess: the one place where kernel, noise, operator, solver and posterior meet."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import as_parameter, in_wide, is_traced, on_device
from dualgp._checks import check_count, check_finite, check_key, check_targets, refuse_traced
from dualgp._random import generator, subkey
from dualgp._types import AnyArray, Columns, Parameter, Points, RandomKey
from dualgp.budget import over_all_rows, over_rows, rows_in_budget
from dualgp.kernels import Kernel
from dualgp.operators import KernelOperator, policy
from dualgp.operators.cross import CrossProduct, evaluate
from dualgp.operators.layout import Local, make_layout
from dualgp.operators.noise import Noise, check_noise
from dualgp.operators.tiles import precision
from dualgp.posterior import ExactPosterior, LeftOut, Posterior, SampledPosterior
from dualgp.posterior.prior import PriorPaths, prior_paths
from dualgp.solvers import DivergenceWarning, Result, Solver, as_solver, solve
from dualgp.solvers.base import Run
from dualgp.solvers.residual import FRESH_ROWS
from dualgp.solvers.stopping import Deadline, as_deadline


class GaussianProcess(eqx.Module):
    """f ~ GP(mean, kernel), y = f(x) + N(0, noise).

    `noise` is a *variance*; `mean` a constant.
    """

    kernel: Kernel
    noise: Parameter = eqx.field(converter=as_parameter)
    mean: Parameter = eqx.field(default=0.0, converter=as_parameter)

    def __check_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise TypeError(f"kernel must be a dualgp kernel such as Matern32(), got {type(self.kernel).__name__}.")
        check_noise(self.noise)
        check_finite(self.mean, "mean")
        if self.mean.ndim != 0:
            raise ValueError(f"mean must be one number, got shape {self.mean.shape}.")

    def __repr__(self) -> str:
        if is_traced(self.noise, self.mean):
            return f"GaussianProcess({self.kernel!r}, traced)"
        return f"GaussianProcess({self.kernel!r}, noise={float(self.noise):.4g}, mean={float(self.mean):.4g})"

    @in_wide
    def condition(
        self,
        x: Any,
        y: Any,
        *,
        solver: Solver | str = "auto",
        num_samples: int = 64,
        key: RandomKey | None = None,
        num_features: int = 4096,
        start: Any = None,
        dtype: Any = None,
        memory: int | None = None,
        mesh: Any = None,
        all_rows: bool = False,
        max_seconds: float | Deadline | None = None,
        max_passes: float | None = None,
        checkpoint: str | os.PathLike | None = None,
        progress: bool = False,
    ) -> Posterior:
        """The posterior given all of the data: one solve for the mean and the samples together.

        **Arguments:**

        - `x` (n, d) or (n,), `y` (n,).
        - `solver`: "auto", or one of the solvers with settings of your own.
        - `num_samples`: posterior functions; they also give the standard deviation (64 know it to 9 %). 0 is allowed.
        - `key`: randomness of samples and solver; `num_features`: random features for each prior function.
        - `start`: weights of all rows to start from, those of a posterior with similar parameters, the same key and at
          most as many samples.
        - `dtype`: by default that of `x`, but float32 from 10,000 points on.
        - `memory`: see `KernelOperator`. Unless it is given, K is kept where it fits and that saves time.
        - `mesh`: devices to shard the rows over: a `jax.sharding.Mesh`, a number, "all" or a list. On many hosts every
          process makes the same call with the whole `x` and `y`, as memory maps say: each reads its own rows.
        - `max_seconds`, `max_passes`, `checkpoint`, `progress`: see `solve`. Where a budget is too short for more than
          100,000 rows, a random subset of them is solved for (`refine` adds others); with `all_rows=True` all of them.
        """
        refuse_traced("GaussianProcess.condition", self, x, y)
        deadline, solver = as_deadline(max_seconds), as_solver(solver)
        check_count(num_samples, "num_samples")
        operator, y = self._operator_and_targets(x, y, mesh, dtype, memory, solver)
        prior = None
        if num_samples:
            check_count(num_features, "num_features", 2)
            policy.check_functions(
                num_samples, operator.layout.height // operator.layout.num_devices, "num_samples", num_features
            )
            sample_key = subkey(check_key(key, "Drawing samples"), "samples")
            prior = prior_paths(self.kernel, operator.x.shape[1], num_samples, sample_key, num_features)
        run = Run(key, start, None, deadline, max_passes, checkpoint, progress)
        layout, num_rows = operator.layout, operator.n
        if not all_rows and start is None:
            num_rows = rows_in_budget(operator, prior, run)
        if num_rows < operator.n:
            y = layout.collect(layout.place_own(y[:, None]))[:, 0]
            nothing = np.zeros((0, 1 + num_samples), operator.dtype)
            known = Known(np.zeros(0, np.int32), nothing, nothing)
            return self._solve_subset(operator, y, known, prior, num_rows, solver, run)
        targets = self._targets(layout.read_own(operator.x), y, prior, key, operator.n, layout.own)
        if start is not None:
            run = replace(run, start=_as_start(start, operator, targets.shape[1]))
        return self._solve(operator, layout.place_own(targets), prior, solver, run)

    @in_wide
    def extend(
        self,
        posterior: Posterior,
        x: Any,
        y: Any,
        *,
        key: RandomKey | None = None,
        solver: Solver | str = "auto",
        memory: int | None = None,
        **budget: Any,
    ) -> Posterior:
        """`posterior` given more data as well. The same prior functions, the solve started from the old weights."""
        x = self.kernel.points(x, "x", posterior.d)
        y = np.asarray(check_targets(y, x.shape[0]), np.float64)
        if x.shape[0] == 0:
            return posterior
        if posterior.num_samples:
            check_key(key, "Drawing samples")
        return self._add_rows(posterior, np.asarray(x), y, as_solver(solver), memory, _as_run(key, **budget))

    @in_wide
    def refine(
        self,
        posterior: Posterior,
        *,
        solver: Solver | str | None = None,
        key: RandomKey,
        memory: int | None = None,
        **budget: Any,
    ) -> Posterior:
        """`posterior` solved further, by the same solver unless another is given; rows that were left out take part."""
        solver = as_solver(posterior.solution.solver if solver is None else solver)
        run = _as_run(key, **budget)
        if posterior.left_out is not None:
            nothing = np.zeros((0, posterior.d), np.asarray(posterior.left_out.x).dtype)
            return self._add_rows(posterior, nothing, np.zeros(0), solver, memory, run)
        x = posterior.layout.collect(posterior.x).astype(posterior.dtype)
        operator = self._operator(x, posterior, memory, solver)
        run = replace(run, resume=posterior.solution)
        return self._solve(operator, posterior.targets, posterior.prior, solver, run)

    def learn(self, x: Any, y: Any, *, key: RandomKey | None = None, **settings: Any) -> GaussianProcess:
        """A new GaussianProcess whose hyperparameters suit the data, found from the ones here.

        Settings as for `dualgp.learn`, which also returns what happened, and the posterior where it has one.
        """
        from dualgp.learning import learn  # an application of this class

        return learn(self, x, y, key=key, **settings).model

    def sample_prior(self, d: int, num_samples: int, *, key: RandomKey, num_features: int = 4096) -> Any:
        """Functions drawn from the prior: a callable from (m, d) points to (num_samples, m) values."""
        for count, name in ((d, "d"), (num_samples, "num_samples"), (num_features, "num_features")):
            check_count(count, name, 1)
        policy.check_functions(num_samples, 1, "num_samples", num_features)
        paths = prior_paths(self.kernel, d, num_samples, check_key(key, "sample_prior"), num_features)
        template = np.zeros((0, d), np.float32)
        return lambda x: float(self.mean) + evaluate(paths, x, template, self.kernel).T

    def _operator_and_targets(
        self, x: Any, y: Any, mesh: Any, dtype: Any, memory: int | None, solver: Solver
    ) -> tuple[KernelOperator, AnyArray]:
        """The operator, and the targets of the rows that this process holds."""
        if mesh is None:
            x = own_x = self.kernel.points(x)
            y = check_targets(y, x.shape[0])
        else:
            x, y = (array if hasattr(array, "shape") else np.asarray(array) for array in (x, y))
            if y.shape[:1] != x.shape[:1]:
                raise ValueError(f"y has {y.shape[0]} value(s) for {x.shape[0]} row(s) of x. Pass one target per row.")
            own = make_layout(x.shape[0], mesh).own
            own_x = self.kernel.points(np.asarray(x[own]))
            y = check_targets(np.asarray(y[own]), len(own_x))
        dtype, few_passes = policy.choose_precision(own_x, x.shape[0], dtype), solver.takes_few_passes
        operator = KernelOperator(
            self.kernel, x, self.noise, mesh=mesh, memory=memory, few_passes=few_passes, dtype=dtype
        )
        return operator, np.asarray(y, np.float64)

    def _operator(self, x: Points, posterior: Posterior, memory: int | None, solver: Solver) -> KernelOperator:
        """The operator of other rows, on the devices of `posterior` and in the precision that suits their number."""
        mesh, few_passes = posterior.layout.mesh, solver.takes_few_passes
        was_asked_for = posterior.dtype == "float64" and posterior.layout.n > policy.DOUBLE_UP_TO
        dtype = policy.choose_precision(x, x.shape[0], np.float64 if was_asked_for else None)
        return KernelOperator(self.kernel, x, self.noise, mesh=mesh, memory=memory, few_passes=few_passes, dtype=dtype)

    def _targets(
        self,
        x: Points,
        y: Float[np.ndarray, " rows"],
        prior: PriorPaths | None,
        key: RandomKey | None,
        n: int,
        rows: slice | Int[np.ndarray, " rows"],
    ) -> Float[np.ndarray, "rows columns"]:
        """Right-hand sides of some of n rows: y - mean, then phi(X) @ w + epsilon for each sample."""
        num_samples = 0 if prior is None else prior.weights.shape[1]
        columns = np.empty((len(y), 1 + num_samples), precision(x))
        columns[:, 0] = y - float(self.mean)
        if prior is not None:
            noise_key = subkey(check_key(key, "Drawing samples"), "noise")
            columns[:, 1:] = Noise(self.noise).draw(noise_key, n, num_samples, rows)
            columns[:, 1:] += evaluate(prior, x, x, self.kernel)
        return columns

    def _add_rows(
        self, posterior: Posterior, x: np.ndarray, y: np.ndarray, solver: Solver, memory: int | None, run: Run
    ) -> Posterior:
        """`posterior` with these rows, and with those that were left out, as far as the budget goes."""
        layout, before, left_out = posterior.layout, posterior.n, posterior.left_out
        places = np.arange(before) if left_out is None else np.delete(np.arange(before), left_out.places)
        all_x = np.empty((before + len(x), posterior.d), np.result_type(posterior.dtype, x.dtype))
        all_y = np.concatenate([np.empty(before), y])
        targets, weights = (layout.collect(array) for array in (posterior.targets, posterior.weights))
        all_x[before:], all_x[places], all_y[places] = x, layout.collect(posterior.x), targets[:, 0] + float(self.mean)
        if left_out is not None:
            all_x[left_out.places], all_y[left_out.places] = left_out.x, np.asarray(left_out.y) + float(self.mean)
        operator = self._operator(all_x, posterior, memory, solver)
        known = Known(places, targets.astype(operator.dtype), weights.astype(operator.dtype))
        num_rows = rows_in_budget(operator, posterior.prior, run, fewest=len(places))
        return self._solve_subset(operator, all_y, known, posterior.prior, num_rows, solver, run)

    def _solve_subset(
        self,
        operator: KernelOperator,
        y: Float[np.ndarray, " n"],
        known: Known,
        prior: PriorPaths | None,
        num_rows: int,
        solver: Solver,
        run: Run,
    ) -> Posterior:
        """Solve for `num_rows` rows, started from what is known of some of them; the others are left out."""
        x, n = operator.layout.collect(operator.x), operator.n
        draw = lambda rows: self._targets(x[rows], y[rows], prior, run.key, n, rows)  # noqa: E731
        chosen = known.choose(n, num_rows, run.key)
        is_new = np.isin(chosen, known.places, invert=True)
        targets, start = (np.zeros((num_rows, known.targets.shape[1]), operator.dtype) for _ in range(2))
        targets[~is_new], start[~is_new], targets[is_new] = known.targets, known.weights, draw(chosen[is_new])
        solved = operator if num_rows == n else operator.subset(chosen)
        place = lambda columns: solved.layout.place(columns, solved.dtype)  # noqa: E731
        run = replace(over_rows(run, num_rows, n), start=place(start) if len(known.places) else None)
        posterior = self._solve(solved, place(targets), prior, solver, run)
        if num_rows == n:
            return posterior
        places = np.delete(np.arange(n), chosen)
        some = generator(subkey(check_key(run.key, "Checking"), "left out")).permutation(places)[:FRESH_ROWS]
        solution = over_all_rows(posterior, x[some], draw(some), len(places))
        left_out = LeftOut(x[places], y[places] - float(self.mean), places)
        return replace(posterior, solution=solution, left_out=left_out)

    def _solve(
        self, operator: KernelOperator, targets: Columns, prior: PriorPaths | None, solver: Solver, run: Run
    ) -> Posterior:
        solution = solve(
            operator,
            targets,
            solver,
            key=None if run.key is None else subkey(run.key, "solve"),
            start=run.start if run.resume is None else run.resume,
            max_seconds=run.deadline,
            max_passes=run.max_passes,
            checkpoint=run.checkpoint,
            progress=run.progress,
        )
        if solution.result is Result.DIVERGED:
            warnings.warn(solution.message, DivergenceWarning, stacklevel=6)
        dtype = str(operator.x.dtype)
        if solution.factor is None:
            return SampledPosterior(self, operator.cross(solution.weights), targets, prior, solution, dtype)
        # An exact solution is worth exact arithmetic in predictions too: with little noise, float32 would spoil it.
        x, targets = (operator.layout.collect(array) for array in (operator.x, targets))
        targets, weights = (on_device(array, np.float64) for array in (targets, solution.weights))
        far = CrossProduct(self.kernel, self.kernel.stored(x, np.float64), weights, Local(operator.n))
        return ExactPosterior(self, far, targets, prior, solution, dtype)


class Known(NamedTuple):
    """What is known of some rows before a solve: their places in the data, targets and weights."""

    places: Int[np.ndarray, " rows"]
    targets: Float[np.ndarray, "rows columns"]
    weights: Float[np.ndarray, "rows columns"]

    def choose(self, n: int, num_rows: int, key: RandomKey | None) -> Int[np.ndarray, " chosen"]:
        """These rows and random others, `num_rows` in all, in the order of the data."""
        others = np.delete(np.arange(n, dtype=np.int32), self.places)
        if num_rows < n:
            others = generator(subkey(check_key(key, "Choosing rows"), "subset")).choice(
                others, num_rows - len(self.places), replace=False
            )
        return np.sort(np.concatenate([self.places.astype(np.int32), others]))


def _as_run(
    key: RandomKey | None,
    *,
    max_seconds: float | Deadline | None = None,
    max_passes: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
) -> Run:
    return Run(key, None, None, as_deadline(max_seconds), max_passes, checkpoint, progress)


def _as_start(start: Any, operator: KernelOperator, num_columns: int) -> Columns:
    """Weights to start from, with zeros for columns that they do not have."""
    if np.ndim(start) != 2 or np.shape(start)[1] > num_columns:
        raise ValueError(f"start must have {operator.n} rows and at most {num_columns} columns, got {np.shape(start)}.")
    start = start if operator.layout.holds(start) else operator.layout.place(start, operator.dtype)
    return jnp.pad(start, ((0, 0), (0, num_columns - np.shape(start)[1])))
