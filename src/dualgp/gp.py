"""GaussianProcess: the one place where kernel, noise, operator, solver and posterior meet."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._arrays import as_parameter, in_wide, is_traced
from dualgp._checks import as_columns, check_count, check_finite, check_key, check_outputs, refuse_traced
from dualgp._random import subkey
from dualgp._types import Columns, Parameter, RandomKey
from dualgp.fields import Data, condition
from dualgp.kernels import Kernel
from dualgp.operators import KernelOperator, policy
from dualgp.operators.cross import evaluate
from dualgp.operators.layout import make_layout
from dualgp.operators.merging import GivenRows, merge_equal_inputs
from dualgp.operators.noise import Noise, as_noise, check_noise
from dualgp.posterior import Posterior
from dualgp.posterior.prior import prior_paths
from dualgp.solvers import Solver, as_solver
from dualgp.solvers.base import Run, check_passes
from dualgp.solvers.stopping import Deadline, as_deadline
from dualgp.updates import Known, extend_near_field, fits_into_near_field, gather


class GaussianProcess(eqx.Module):
    """f ~ GP(mean, kernel), y = f(x) + N(0, noise).

    `noise` is a *variance*; `mean` a constant, or one for each of several outputs.
    """

    kernel: Kernel
    noise: Parameter = eqx.field(converter=as_parameter)
    mean: Parameter = eqx.field(default=0.0, converter=as_parameter)

    def __check_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise TypeError(f"kernel must be a dualgp kernel such as Matern32(), got {type(self.kernel).__name__}.")
        check_noise(self.noise)
        check_finite(self.mean, "mean")
        if self.mean.ndim > 1:
            raise ValueError(f"mean must be one number, or one for each output, got shape {self.mean.shape}.")

    def __repr__(self) -> str:
        if is_traced(self.noise, self.mean):
            return f"GaussianProcess({self.kernel!r}, traced)"
        mean = np.array2string(np.asarray(self.mean), precision=4, threshold=8)
        return f"GaussianProcess({self.kernel!r}, noise={float(self.noise):.4g}, mean={mean})"

    @in_wide
    def condition(
        self,
        x: Any,
        y: Any,
        *,
        noise: Any = None,
        merge: bool = True,
        solver: Solver | str = "auto",
        num_samples: int = 16,
        key: RandomKey | None = None,
        num_features: int = 4096,
        neighbours: int | str = "auto",
        num_far: int | None = None,
        start: Any = None,
        dtype: Any = None,
        memory: int | None = None,
        mesh: Any = None,
        max_seconds: float | Deadline | None = None,
        max_passes: float | None = None,
        checkpoint: str | os.PathLike | None = None,
        progress: bool = False,
    ) -> Posterior:
        """The posterior given all of the data: one solve for the mean and the samples together.

        **Arguments:**

        - `x` (n, d) or (n,), `y` (n,), or (n, k) for k outputs that have kernel and noise in common.
        - `noise`: the variance of each row's noise, (n,), or one of all of them, in place of the model's, which
          remains that of new observations.
        - `merge`: rows with equal inputs become one, with the mean of their y, which changes no answer. Ignored with
          many processes.
        - `solver`: "auto", or one of the solvers with settings of your own.
        - `num_samples`: posterior functions. They also make standard deviations sharper; with 0 these are those of the
          neighbours alone, an upper bound.
        - `key`: randomness of samples and solver; `num_features`: random features for each prior function.
        - `neighbours`: how many of the nearest rows the near field of a prediction has; 0 for the far field alone.
          "auto" tries several on rows kept aside. An exact solution needs none.
        - `num_far`: how many random rows have far weights: n for all of them, 0 for predictions by neighbours alone. By
          default all up to 100,000 rows. Beyond, as many as a minute, or the limit, allows, and none if they do not
          improve predictions.
        - `start`: weights of all rows to start from, those of a posterior with similar parameters, the same key and at
          most as many samples.
        - `dtype`: by default that of `x`, but float32 from 10,000 points on.
        - `memory`: see `KernelOperator`. Unless it is given, K is kept where it fits and that saves time.
        - `mesh`: devices to shard the rows over: a `jax.sharding.Mesh`, a number, "all" or a list. On many hosts every
          process makes the same call with the whole `x` and `y`, as memory maps say: each reads its own rows.
        - `max_seconds`, `max_passes`, `checkpoint`, `progress`: see `solve`.
        """
        refuse_traced("GaussianProcess.condition", self, x, y)
        deadline, solver = as_deadline(max_seconds), as_solver(solver)
        run = _as_run(key, max_seconds=deadline, max_passes=max_passes, checkpoint=checkpoint, progress=progress)
        check_count(num_samples, "num_samples")
        operator, y, given = self._operator_and_targets(x, y, noise, merge, mesh, dtype, memory, solver)
        prior, draw_key = None, None
        if num_samples:
            check_count(num_features, "num_features", 2)
            policy.check_functions(
                num_samples, operator.layout.height // operator.layout.num_devices, "num_samples", num_features
            )
            sample_key, noise_key = (subkey(check_key(key, "Drawing samples"), what) for what in ("samples", "noise"))
            prior = prior_paths(self.kernel, operator.x.shape[1], num_samples, sample_key, num_features)
            draw_key = np.ravel(jax.random.key_data(noise_key))[:2]
        if num_far is not None:
            num_far = min(check_count(num_far, "num_far", 0 if neighbours else 1), operator.n)
        data = Data(self, operator, y, prior, draw_key, _sizes(neighbours, operator.n), given)
        if start is not None:
            run, num_far = replace(run, start=_as_start(start, operator, data.num_columns)), operator.n
        return condition(data, solver, run, num_far)

    @in_wide
    def extend(
        self,
        posterior: Posterior,
        x: Any,
        y: Any,
        *,
        noise: Any = None,
        key: RandomKey | None = None,
        solver: Solver | str = "auto",
        memory: int | None = None,
        **budget: Any,
    ) -> Posterior:
        """`posterior` given further rows, with the same prior functions. `noise`: the variances of the new rows.

        New rows enter the near field without a solve, until they are a tenth of the rows that have weights. Then, and
        without a near field, the equations are solved again, starting from the old weights.
        """
        x = self.kernel.points(x, "x", posterior.d)
        y = as_columns(check_outputs(y, x.shape[0]))
        if x.shape[0] == 0:
            return posterior
        if y.shape[1] != posterior.num_outputs:
            raise ValueError(f"y has {y.shape[1]} output(s), the posterior {posterior.num_outputs}. Pass as many.")
        own = as_noise(self.noise if noise is None else noise, len(y))
        if posterior.num_samples:
            check_key(key, "Drawing samples")
        run, known = _as_run(key, **budget), gather(posterior, np.asarray(x), y, own, key)
        if fits_into_near_field(posterior, x.shape[0]):
            return extend_near_field(posterior, known)
        return self._solve_again(posterior, known, as_solver(solver), memory, run)

    @in_wide
    def refine(
        self,
        posterior: Posterior,
        *,
        solver: Solver | str | None = None,
        key: RandomKey,
        memory: int | None = None,
        num_far: int | None = None,
        **budget: Any,
    ) -> Posterior:
        """`posterior` solved further, by the same solver unless another is given.

        Where only some rows have far weights, others get them too: `num_far` in all, by default twice as many or as
        many as a limit allows.
        """
        solver = as_solver(posterior.solution.solver if solver is None else solver)
        run, nothing = _as_run(key, **budget), np.zeros((0, posterior.d), posterior.x.dtype)
        known = gather(posterior, nothing, np.zeros((0, posterior.num_outputs)), Noise(self.noise), key)
        if posterior.num_far == posterior.layout.n and not posterior.is_exact:
            run = replace(run, resume=posterior.solution)
        elif num_far is None and not (run.deadline.is_set or run.max_passes is not None):
            num_far = min(posterior.layout.n, max(2 * posterior.num_far, policy.FAR_TRIAL))
        return self._solve_again(posterior, known, solver, memory, run, num_far)

    def _solve_again(
        self,
        posterior: Posterior,
        known: Known,
        solver: Solver,
        memory: int | None,
        run: Run,
        num_far: int | None = None,
    ) -> Posterior:
        """Solve for all rows, starting from the known weights."""
        mesh, few_passes = posterior.layout.mesh, solver.takes_few_passes
        memory = _memory_for(solver, len(known.x), memory)
        was_asked_for = posterior.dtype == "float64" and posterior.layout.n > policy.DOUBLE_UP_TO
        dtype = policy.choose_precision(known.x, len(known.x), np.float64 if was_asked_for else None)
        operator = KernelOperator(
            self.kernel, known.x, known.noise, mesh=mesh, memory=memory, few_passes=few_passes, dtype=dtype
        )
        sizes = _sizes("auto" if posterior.is_exact or posterior.neighbours else 0, operator.n)
        own = known.targets[operator.layout.own, : known.num_outputs].astype(np.float64)
        data = Data(self, operator, own + np.asarray(self.mean), posterior.prior, known.draw_key, sizes, known.given)
        return condition(data, solver, run, num_far, known)

    def learn(self, x: Any, y: Any, *, key: RandomKey | None = None, **settings: Any) -> GaussianProcess:
        """A new GaussianProcess whose hyperparameters suit the data, found from the ones here.

        Settings as for `dualgp.learn`, which also returns the history, and a posterior if it has solved for one.
        """
        from dualgp.learning import learn  # which imports this class

        return learn(self, x, y, key=key, **settings).model

    def sample_prior(self, d: int, num_samples: int, *, key: RandomKey, num_features: int = 4096) -> Any:
        """Functions drawn from the prior: a callable from (m, d) points to (num_samples, m) values."""
        for count, name in ((d, "d"), (num_samples, "num_samples"), (num_features, "num_features")):
            check_count(count, name, 1)
        if self.mean.ndim:
            raise ValueError(f"The model has {len(self.mean)} means. Draw functions of one output, with a single mean.")
        policy.check_functions(num_samples, 1, "num_samples", num_features)
        paths = prior_paths(self.kernel, d, num_samples, check_key(key, "sample_prior"), num_features)
        template = np.zeros((0, d), np.float32)
        return lambda x: float(self.mean) + evaluate(paths, x, template, self.kernel).T

    def _operator_and_targets(
        self, x: Any, y: Any, noise: Any, merge: bool, mesh: Any, dtype: Any, memory: int | None, solver: Solver
    ) -> tuple[KernelOperator, Float[np.ndarray, "own k"], GivenRows | None]:
        """The operator, the targets of the rows of this process, and the rows before merging if some were merged."""
        given = None
        if np.isscalar(noise) or getattr(noise, "ndim", 1) == 0:  # for all rows, but not for new observations
            noise = np.full(np.shape(x)[0], check_noise(noise))
        if mesh is None or jax.process_count() == 1:
            x = self.kernel.points(x)
            y = as_columns(check_outputs(y, x.shape[0]))
            noise = as_noise(self.noise if noise is None else noise, x.shape[0])
            if merge:
                x, y, noise, given = merge_equal_inputs(x, y, noise)
            own_x = x
        else:
            x, y = (array if hasattr(array, "shape") else np.asarray(array) for array in (x, y))
            if y.shape[:1] != x.shape[:1]:
                raise ValueError(f"y has {y.shape[0]} value(s) for {x.shape[0]} row(s) of x. Pass one target per row.")
            noise, own = self.noise if noise is None else noise, make_layout(x.shape[0], mesh).own
            own_x = self.kernel.points(np.asarray(x[own]))
            y = as_columns(check_outputs(np.asarray(y[own]), len(own_x)))
        if np.ndim(self.mean) and np.shape(self.mean) != y.shape[1:]:
            raise ValueError(f"The model has {len(self.mean)} means, but y has {y.shape[1]} output(s).")
        dtype, few_passes = policy.choose_precision(own_x, x.shape[0], dtype), solver.takes_few_passes
        memory = _memory_for(solver, x.shape[0], memory)
        operator = KernelOperator(self.kernel, x, noise, mesh=mesh, memory=memory, few_passes=few_passes, dtype=dtype)
        return operator, y, given


def _memory_for(solver: Solver, n: int, memory: int | None) -> int | None:
    """The memory that K may take; none where the solver would not use it."""
    return 0 if memory is None and solver.is_direct(n) else memory


def _sizes(neighbours: int | str, n: int) -> tuple[int, ...]:
    """The numbers of neighbours to choose from."""
    if neighbours == "auto":
        sizes = policy.NEIGHBOURS if n <= policy.FAR_ALL_UP_TO else policy.NEIGHBOURS_OF_MANY
        return tuple(size for size in sizes if size < n) or (n,)
    if isinstance(neighbours, str):
        raise ValueError(f'neighbours must be "auto" or a whole number, got {neighbours!r}.')
    number = min(check_count(neighbours, "neighbours"), n)
    return (number,) if number else ()


def _as_run(
    key: RandomKey | None,
    *,
    max_seconds: float | Deadline | None = None,
    max_passes: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
) -> Run:
    check_passes(max_passes)
    return Run(key, deadline=as_deadline(max_seconds), max_passes=max_passes, checkpoint=checkpoint, progress=progress)


def _as_start(start: Any, operator: KernelOperator, num_columns: int) -> Columns:
    """Weights to start from, with zeros for missing columns."""
    if np.ndim(start) != 2 or np.shape(start)[1] > num_columns:
        raise ValueError(f"start must have {operator.n} rows and at most {num_columns} columns, got {np.shape(start)}.")
    start = start if operator.layout.holds(start) else operator.layout.place(start, operator.dtype)
    return jnp.pad(start, ((0, 0), (0, num_columns - np.shape(start)[1])))
