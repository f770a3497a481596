"""GaussianProcess: the one place where kernel, operator, solver and posterior meet."""

from __future__ import annotations

import time
import warnings
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from dualgp._arrays import as_parameter, in_wide, is_traced, on_device
from dualgp._checks import check_count, check_finite, check_key, check_targets, refuse_traced
from dualgp._random import independent_normals, subkeys
from dualgp._types import AnyArray, Columns, Points, RandomKey
from dualgp.kernels import Kernel
from dualgp.operators.evaluation import evaluate
from dualgp.operators.kernel import KernelOperator, check_noise
from dualgp.operators.sharded import ShardedOperator
from dualgp.operators.tiles import precision
from dualgp.paths import PriorPaths, prior_paths
from dualgp.posterior import Posterior
from dualgp.sharding import Layout, as_mesh
from dualgp.solvers import DivergenceWarning, Result, Solver, as_solver, solve

DOUBLE_UP_TO = 10_000  # points: beyond, float64 inputs are solved in float32 unless dtype says otherwise


class GaussianProcess(eqx.Module):
    """f ~ GP(mean, kernel), y = f(x) + N(0, noise).

    `noise` is a *variance*; `mean` a constant.
    """

    kernel: Kernel
    noise: AnyArray = eqx.field(converter=as_parameter)
    mean: AnyArray = eqx.field(default=0.0, converter=as_parameter)

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
        max_seconds: float | None = None,
        max_passes: float | None = None,
        checkpoint: Any = None,
        progress: bool = False,
    ) -> Posterior:
        """The posterior given all of the data: one solve for the mean and the samples together.

        **Arguments:**

        - `x` (n, d) or (n,), `y` (n,).
        - `solver`: "auto", or one of the solvers with settings of your own.
        - `num_samples`: posterior functions; they also give the standard deviation (64 know it to 9 %). 0 is allowed.
        - `key`: randomness of samples and solver; `num_features`: random features for each prior function.
        - `start`: weights to start from, those of a posterior with similar parameters, the same key and at most as many
          samples.
        - `dtype`: by default that of `x`, but float32 from 10,000 points on.
        - `memory`: see `KernelOperator`. Unless it is given, K is kept where it fits and that saves time.
        - `mesh`: devices to spread the rows over: a `jax.sharding.Mesh`, a number, "all" or a list. On many hosts every
          process makes the same call with the whole `x` and `y`, as memory maps say: each reads its own rows.
        - `max_seconds`, `max_passes`, `checkpoint`, `progress`: see `solve`.
        """
        refuse_traced("GaussianProcess.condition", self, x, y)
        solver = as_solver(solver)
        check_count(num_samples, "num_samples")
        began = time.perf_counter()
        operator: KernelOperator | ShardedOperator
        room: dict[str, Any] = {"memory": memory, "few_passes": solver.takes_few_passes}
        if mesh is None:
            x = self.kernel.points(x)
            y = check_targets(y, x.shape[0])
            room["dtype"] = _precision(x, x.shape[0], dtype)
            operator = KernelOperator(self.kernel, x, self.noise, **room)
        else:
            operator, y = self._spread(x, y, mesh, dtype, room)
        sample_key, noise_key, solve_key = _split(key, num_samples)
        prior = None
        if num_samples:
            prior = prior_paths(
                self.kernel, operator.x.shape[1], num_samples, sample_key, check_count(num_features, "num_features", 2)
            )
        targets = self._targets(operator, y, prior, noise_key)
        if start is not None:
            if np.ndim(start) != 2 or np.shape(start)[1] > targets.shape[1]:
                raise ValueError(
                    f"start must have {operator.n} rows and at most {targets.shape[1]} columns, got {np.shape(start)}."
                )
            start = start if operator.holds(start) else operator.place(start)
            start = jnp.pad(start, ((0, 0), (0, targets.shape[1] - np.shape(start)[1])))
        if max_seconds is not None and max_seconds > 0:  # drawing functions at many rows takes time as well
            max_seconds = max(1e-3, max_seconds - operator.agreed(time.perf_counter() - began))
        run = {"max_seconds": max_seconds, "max_passes": max_passes, "checkpoint": checkpoint, "progress": progress}
        return self._posterior(operator, targets, prior, solver, key=solve_key, start=start, **run)

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
        **run: Any,
    ) -> Posterior:
        """`posterior` given more data as well. The same prior functions, the solve started from the old weights."""
        x = self.kernel.points(x, "x", posterior.d)
        y = check_targets(y, x.shape[0])
        if x.shape[0] == 0:
            return posterior
        _, noise_key, solve_key = _split(key, posterior.num_samples)
        before, dtype = posterior.gathered(), precision(posterior.x)
        x_new = jnp.asarray(x, posterior.x.dtype)
        new_targets = self._columns(x_new, y, posterior.prior, noise_key, slice(0, len(y)), len(y))
        solver = as_solver(solver)
        operator = self._operator(jnp.concatenate([before.x, x_new]), posterior, memory, solver)
        targets = operator.place(jnp.concatenate([before.targets, new_targets]))
        start = operator.place(jnp.concatenate([jnp.asarray(before.weights, dtype), jnp.zeros_like(new_targets)]))
        return self._posterior(operator, targets, posterior.prior, solver, key=solve_key, start=start, **run)

    @in_wide
    def refine(
        self,
        posterior: Posterior,
        *,
        solver: Solver | str | None = None,
        key: RandomKey,
        memory: int | None = None,
        **run: Any,
    ) -> Posterior:
        """`posterior` solved further, by the same solver unless another is given."""
        solver = as_solver(posterior.solution.solver if solver is None else solver)
        operator = self._operator(posterior.gathered().x, posterior, memory, solver)
        return self._posterior(
            operator, posterior.targets, posterior.prior, solver, key=key, start=posterior.solution, **run
        )

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
        paths = prior_paths(self.kernel, d, num_samples, check_key(key, "sample_prior"), num_features)
        template = np.zeros((0, d), np.float32)
        return lambda x: float(self.mean) + evaluate(paths, x, template, self.kernel).T

    def _operator(
        self, x: Points, posterior: Posterior, memory: int | None, solver: Solver
    ) -> KernelOperator | ShardedOperator:
        """On the devices that `posterior` is on."""
        room: dict[str, Any] = {"memory": memory, "few_passes": solver.takes_few_passes}
        if posterior.layout is None:
            return KernelOperator(self.kernel, x, self.noise, **room)
        return ShardedOperator(self.kernel, x, self.noise, mesh=posterior.layout.mesh, **room)

    def _spread(self, x: Any, y: Any, mesh: Any, dtype: Any, room: dict[str, Any]) -> tuple[ShardedOperator, AnyArray]:
        """The operator, and the targets of the rows that are this process's own."""
        x, y = (array if hasattr(array, "shape") else np.asarray(array) for array in (x, y))
        if y.shape[:1] != x.shape[:1]:
            raise ValueError(f"y has {y.shape[0]} value(s) for {x.shape[0]} row(s) of x. Pass one target per row.")
        mesh = as_mesh(mesh)
        own = Layout(x.shape[0], mesh).own
        x_own = self.kernel.points(np.asarray(x[own]))
        dtype = _precision(x_own, x.shape[0], dtype)
        operator = ShardedOperator(self.kernel, x, self.noise, mesh=mesh, **room, dtype=dtype)
        return operator, check_targets(np.asarray(y[own]), len(x_own))

    def _targets(
        self, operator: KernelOperator | ShardedOperator, y: AnyArray, prior: PriorPaths | None, key: RandomKey | None
    ) -> Columns:
        """Right-hand sides, where the operator wants them; `y` has the rows of this process."""
        if isinstance(operator, KernelOperator):
            return self._columns(operator.x, y, prior, key, slice(0, operator.n), operator.n)
        own = operator.layout.own
        return operator.layout.place(self._columns(operator.own_x(), y, prior, key, own, operator.n))

    def _columns(
        self, x: Points, y: AnyArray, prior: PriorPaths | None, key: RandomKey | None, rows: slice, n: int
    ) -> Columns:
        """y - mean, then phi(X) @ w + epsilon for each sample, for some of the n rows."""
        columns = [(np.asarray(y, np.float64) - float(self.mean))[:, None]]
        if prior is not None:
            draws = evaluate(prior, x, x, self.kernel)
            epsilon = independent_normals(key, n, draws.shape[1], rows) * np.sqrt(float(self.noise))
            columns.append(draws + epsilon)
        return on_device(np.concatenate(columns, axis=1), precision(x))

    def _posterior(
        self,
        operator: KernelOperator | ShardedOperator,
        targets: Columns,
        prior: PriorPaths | None,
        solver: Solver | str,
        **run: Any,
    ) -> Posterior:
        solution = solve(operator, targets, solver, **run)
        if solution.result is Result.DIVERGED:
            warnings.warn(solution.message, DivergenceWarning, stacklevel=6)
        layout = operator.layout if isinstance(operator, ShardedOperator) else None
        if layout is not None and solution.factor is None:
            return Posterior(self, operator.x, targets, solution.weights, prior, solution, layout)
        # An exact solution is worth exact arithmetic in predictions too: with little noise, float32 would spoil it.
        dtype = operator.dtype if solution.factor is None else np.float64
        x = operator.x if layout is None else layout.collect(operator.x)
        targets = targets if layout is None else layout.collect(targets)
        targets, weights = (on_device(array, dtype) for array in (targets, solution.weights))
        x = x if dtype == operator.dtype else self.kernel.stored(x, dtype)
        return Posterior(self, x, targets, weights, prior, solution)


def _split(key: RandomKey | None, num_samples: int) -> tuple[Any, Any, Any]:
    if key is None and num_samples == 0:
        return None, None, None  # an exact solve without samples needs no randomness; other solvers will ask
    sample_key, noise_key, solve_key = subkeys(check_key(key, "Drawing samples"), 3)
    return sample_key, noise_key, solve_key


def _precision(x: AnyArray, n: int, dtype: Any) -> np.dtype:
    """The dtype to solve in for n points, with a warning where columns of `x`, some of them, do not survive it."""
    if dtype is None:
        dtype = np.float64 if x.dtype == np.float64 and n <= DOUBLE_UP_TO else np.float32
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}.")
    if dtype == np.float32 and x.dtype == np.float64 and len(x):
        lost = np.max(np.abs(x - x.astype(np.float32)), axis=0)
        spread = np.std(x, axis=0)
        hurt = np.flatnonzero((lost > 1e-4 * spread) & (np.ptp(x, axis=0) > 0))
        if hurt.size:
            warnings.warn(
                f"Column(s) {hurt[:5].tolist()} of x vary too little around a large value for float32. "
                "Subtract their mean first, or pass dtype=float64.",
                RuntimeWarning,
                stacklevel=5,
            )
    return dtype
