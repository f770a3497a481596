"""GPRegressor: the scikit-learn front door. Nothing to know and nothing to tune."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dualgp._checks import as_float_array
from dualgp._random import subkey
from dualgp._translate import rescaled, translated
from dualgp.checkpoints import delete
from dualgp.conditioning import Conditioning, finite_score, one_if_constant, validated
from dualgp.gp import GaussianProcess
from dualgp.kernels import Kernel, Matern32
from dualgp.learning import Step, learn
from dualgp.learning.learn import time_to_learn
from dualgp.operators import policy
from dualgp.operators.layout import as_mesh
from dualgp.operators.noise import check_noise
from dualgp.posterior import Posterior
from dualgp.solvers import CG, Auto, BlockDescent, DivergenceWarning, Result, Solution, as_solver
from dualgp.solvers.stopping import Deadline

try:  # scikit-learn >= 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Older versions of scikit-learn have no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        """Older versions of scikit-learn have no callbacks."""
        return method


NOISE = 0.1  # relative to the variance of y, to start from


class GPRegressor(CallbackSupportMixin, RegressorMixin, BaseEstimator):
    """Gaussian process regression on all of the data.

    Inputs and targets may have any scale. Up to 4,096 rows the answer is exact. Beyond, predictions have a far field,
    by iterations on all rows or on some, and a near field of the nearest of all rows.

    Parameters
    ----------
    kernel : a dualgp or scikit-learn kernel, or None
        In the units of the data: `Matern32(lengthscale=3.0)` means 3 units of X. None is the best of four stationary
        kernels with a lengthscale for each column, chosen by the data.
    noise : float or None
        The variance of the noise, in squared units of y. It stays as given; None means that it is learned.
    solver : "auto" or a solver such as `dualgp.SDD()`
    learn : bool
        Whether to learn the kernel's parameters (and the noise, and a constant mean) from the data.
    n_samples : int
        Posterior functions, as `sample_y` and `sample_functions` return. They also make standard deviations sharper.
    tol : float or None
        The relative residual that solver="auto" stops at. None stops when another pass over the data no longer
        improves predictions of rows kept aside.
    max_seconds : float or None
        Stop about then with what there is. Error bars of an unfinished solve are wider, not narrower.
    checkpoint : path or None
        A file to save progress to, and others that begin with its name. The same fit, with the same `random_state`
        (None means 0 here), goes on from it; it is deleted when the fit is complete.
    devices : int, "all", list of JAX devices, `jax.sharding.Mesh` or None
        Spread the rows over these devices; None is the first one alone.
    random_state : int, RandomState or None
    verbose : int
        1 shows progress, 2 also prints a report.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel in the units of the data.
    noise_ : float
        The variance of the noise, in squared units of y.
    mean_ : float
        The constant that predictions return to far from the data.
    lengthscale_ : array
        One for each input, in its units, if the kernel has them.
    posterior_ : Posterior
        For centred inputs and standardised targets: `X - X_offset_` and `(y - y_offset_) / y_scale_`. Inputs are
        centred where the kernel depends on differences only.
    finished_ : bool
        False if a limit or Ctrl-C ended the fit early.
    validation_ : Score or None
        RMSE, log density and coverage of the 90 % band of rows that were kept aside while it was solved, in the units
        of y; None where that was not done, as up to 4,096 rows.
    message_ : str
        What was done, in words; also `print(regressor.report())`.
    """

    def __init__(
        self,
        kernel=None,
        *,
        noise=None,
        solver="auto",
        learn=True,
        n_samples=16,
        tol=None,
        max_seconds=None,
        checkpoint=None,
        devices=None,
        random_state=None,
        verbose=0,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.solver = solver
        self.learn = learn
        self.n_samples = n_samples
        self.tol = tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.devices = devices
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: Any, y: Any) -> GPRegressor:
        """Learn from (n, d) inputs and (n,) targets, and condition on all of them."""
        deadline = Deadline(self.max_seconds)
        X, y = validated(self, X, y)
        self._set_units(X, y)
        targets = (y - self.y_offset_) / self.y_scale_
        condition = Conditioning(self._inputs(X), targets, self._key(), deadline, self._settings(len(y)))
        watcher = _Watcher(self, X, y) if hasattr(self, "_init_callback_context") else None
        model, self.interrupted_ = self._start(one_if_constant(X.std(axis=0, dtype=np.float64), X)), False
        posterior = self._learn(model, condition, watcher) if self.learn else self._take_as_given(model, condition)
        self._conclude(posterior, condition, self.checkpoint)
        if watcher:
            watcher.end()
        if self.verbose > 1:
            print(self.report())
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, *, noise: bool = True) -> Any:
        """The mean at (m, d) points; with `return_std` or `return_cov` also the spread of new observations there.

        `noise=False` leaves the noise out: the spread of the function that the observations scatter around.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be asked for.")
        posterior, x = self._ready(X)
        if (return_std or return_cov) and not posterior.has_std:
            raise ValueError(
                "Error bars come from posterior functions, and there are none. Fit with n_samples=64, say."
            )
        if return_cov:
            covariance = posterior.covariance(x, noise=noise)
            return self._outputs(posterior.mean(x)), covariance * self.y_scale_**2
        if return_std:
            mean, std = posterior.predict(x, noise=noise)
            return self._outputs(mean), std.astype(np.float64) * self.y_scale_
        return self._outputs(posterior.mean(x))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the mean's predictions."""
        return finite_score(RegressorMixin.score, self, X, y, sample_weight)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of new observations, noise included, jointly at (m, d) points: (m, n_samples).

        They are posterior functions plus noise. Where `n_samples` is more than there are functions, they are exact
        draws if the fit was exact (up to 4,096 rows), and an error otherwise.
        """
        posterior, x = self._ready(X)
        policy.check_functions(n_samples, len(x), "n_samples")
        rng = check_random_state(random_state)
        if n_samples <= posterior.num_samples:
            which = rng.choice(posterior.num_samples, n_samples, replace=False)
            values = posterior.samples(x)[which].T.astype(np.float64)
            values += np.sqrt(float(posterior.model.noise)) * rng.standard_normal(values.shape)
        elif posterior.is_exact:
            mean, covariance = posterior.mean(x), posterior.covariance(x, noise=True)
            values = mean[:, None] + np.linalg.cholesky(covariance) @ rng.standard_normal((len(mean), n_samples))
        else:
            raise ValueError(
                f"There are {posterior.num_samples} posterior functions, {n_samples} draws were asked for. "
                f"Fit with n_samples={n_samples} to have as many."
            )
        return self._outputs(values)

    def sample_functions(self) -> Callable[[Any], np.ndarray]:
        """The posterior functions, without noise: a callable from (m, d) points to (n_samples, m) values."""
        check_is_fitted(self)
        frozen = copy.copy(self)  # later fits and updates make other functions
        return lambda X: frozen._outputs(frozen.posterior_.samples(frozen._ready(X)[1]))

    def update(self, X: Any, y: Any) -> GPRegressor:
        """Condition on more data as well, from where the last solve ended. Learned parameters and scales stay."""
        check_is_fitted(self)
        X, y = validated(self, X, y, reset=False)
        targets = (y - self.y_offset_) / self.y_scale_
        posterior = self.posterior_.update(
            self._inputs(X),
            targets,
            key=subkey(_key(self.random_state), self.posterior_.n),
            solver=self._solver(),
            max_seconds=self.max_seconds,
            progress=bool(self.verbose),
        )
        self.finished_ = posterior.solution.result is Result.CONVERGED
        self._keep(posterior)
        return self

    def report(self) -> str:
        """What was done and how good it is, in plain words and in the units of the data."""
        check_is_fitted(self)
        model = f"Kernel {self.kernel_!r}, noise variance {self.noise_:.4g}, mean {self.mean_:.4g}."
        solution = self.posterior_.report_solution(unit=self.y_scale_)
        return "\n".join([self.posterior_.report_size(), model, self.message_, *solution])

    def _set_units(self, X: np.ndarray, y: np.ndarray) -> None:
        """Where inputs are centred, and the units of the targets."""
        # Only where nothing depends on the origin: counts, for one, are what they are.
        moves = self.kernel is None or translated(self.kernel, self.learn)[0].is_stationary
        self.X_offset_ = X.mean(axis=0, dtype=np.float64) if moves else np.zeros(X.shape[1])
        self.y_offset_, self.y_scale_ = float(y.mean()), float(one_if_constant(y.std(), y))

    def _settings(self, n: int) -> dict[str, Any]:
        """Settings of `learn` and `condition`."""
        num_samples = policy.check_functions(self.n_samples, n, "n_samples")
        mesh = None if self.devices is None else as_mesh(self.devices)
        solver = as_solver(self._solver())
        return {"solver": solver, "num_samples": num_samples, "mesh": mesh, "progress": bool(self.verbose)}

    def _learn(self, model: GaussianProcess, condition: Conditioning, watcher: _Watcher | None) -> Posterior:
        """The posterior of a model that is learned, from `model` on."""
        learned = learn(
            model,
            condition.x,
            condition.targets,
            key=subkey(condition.key, "learn"),
            fixed=() if self.noise is None else ("noise",),
            choose_kernel=self.kernel is None,
            max_seconds=time_to_learn(condition.deadline, len(condition.targets)),
            checkpoint=self.checkpoint,
            **condition.settings | ({"progress": watcher} if watcher and watcher.has_company else {}),
        )
        self.message_, self.interrupted_ = learned.message, learned.interrupted
        if np.all(condition.targets == condition.targets[:1]):
            self.message_ = f"All targets are {self.y_offset_:.4g}: there is nothing to learn."
            warnings.warn(f"{self.message_} Error bars are those of a guess.", UserWarning, stacklevel=3)
        posterior = learned.posterior
        if posterior is None:  # few rows, or interrupted: then there is no time for more than a pass
            solve = None if self.checkpoint is None or learned.interrupted else f"{self.checkpoint}.solve"
            posterior = condition(learned.model, max_passes=1.0 if learned.interrupted else None, checkpoint=solve)
        self.finished_ = learned.finished and posterior.solution.result is Result.CONVERGED
        return posterior

    def _take_as_given(self, model: GaussianProcess, condition: Conditioning) -> Posterior:
        """The posterior of `model` itself."""
        self.message_ = "Parameters as given."
        if self.noise is None and (self.kernel is None or translated(self.kernel, False)[1] is None):
            self.message_ += f" The noise was not: {NOISE:g} of the variance of y was assumed."
        posterior = condition(model, checkpoint=self.checkpoint)
        self.finished_ = posterior.solution.result is Result.CONVERGED
        return posterior

    def _conclude(self, posterior: Posterior, condition: Conditioning, checkpoint: Any) -> None:
        """Solve again in float64 where float32 was not enough, and set the fitted attributes."""
        if _needs_double(posterior.solution) and posterior.targets.dtype == np.float32:
            posterior = condition(posterior.model, dtype=np.float64)
            self.message_ += " Float32 was not enough, so it was solved again in float64."
            self.finished_ = posterior.solution.result is Result.CONVERGED
            if self.finished_ and checkpoint is not None:  # what float32 had left to do is done
                for piece in (checkpoint, f"{checkpoint}.solve"):
                    delete(piece)
        if posterior.solution.result is Result.DIVERGED:
            warnings.warn(posterior.solution.message, DivergenceWarning, stacklevel=3)
        self._keep(posterior)

    def _start(self, scales: np.ndarray) -> GaussianProcess:
        """What to start from, on centred inputs and standardised targets; `scales` are those of the inputs."""
        units = self.y_scale_**2
        noise = NOISE * units
        if self.kernel is None:
            kernel: Kernel = Matern32(scales * np.sqrt(len(scales)), units)
        else:
            kernel, white = translated(self.kernel, self.learn, len(scales))
            noise = noise if white is None else white
        if self.noise is not None:
            given = as_float_array(self.noise, "noise")
            check_noise(given)  # here, in the user's units
            noise = float(given)
        return GaussianProcess(rescaled(kernel, 1.0 / units), np.asarray(noise / units))

    def _key(self) -> jax.Array:
        """A fit that may go on later must draw the same numbers again."""
        return _key(0 if self.random_state is None and self.checkpoint is not None else self.random_state)

    def _solver(self) -> Any:
        return Auto(tol=self.tol) if isinstance(self.solver, str) and self.solver == "auto" else self.solver

    def _keep(self, posterior: Posterior) -> None:
        """The fitted attributes."""
        model, units = posterior.model, self.y_scale_**2
        self.posterior_ = posterior
        self.kernel_: Kernel = rescaled(model.kernel, units)
        self.noise_ = float(model.noise) * units
        self.mean_ = float(self._outputs(float(model.mean)))
        score = posterior.solution.validation
        self.validation_ = None if score is None else score.in_units(self.y_scale_)
        lengthscale = getattr(model.kernel, "lengthscale", None)
        self.__dict__.pop("lengthscale_", None)  # of an earlier fit with another kernel
        if lengthscale is not None:
            self.lengthscale_ = np.broadcast_to(np.asarray(lengthscale, np.float64), (posterior.d,)).copy()

    def _inputs(self, X: np.ndarray) -> np.ndarray:
        if not self.X_offset_.any():
            return X
        return (X - self.X_offset_).astype(np.float64 if X.dtype == np.uint8 else X.dtype)

    def _outputs(self, values: Any) -> Any:
        return np.asarray(values, np.float64) * self.y_scale_ + self.y_offset_

    def _ready(self, X: Any) -> tuple[Posterior, np.ndarray]:
        check_is_fitted(self)
        return self.posterior_, self._inputs(validated(self, X, reset=False))


class _Watcher:
    """scikit-learn's callbacks: the fit is a task, and every step of learning is a task in it."""

    def __init__(self, estimator: GPRegressor, X: np.ndarray, y: np.ndarray) -> None:
        self.estimator, self.X, self.y = estimator, X, y
        self.root = estimator._init_callback_context(max_subtasks=None)
        self.has_company = bool(getattr(estimator, "_skl_callbacks", None))
        self.root.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def __call__(self, step: Step) -> bool:
        task = self.root.subcontext(task_name=f"learning from {step.stage}")
        task.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)
        return task.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y)

    def end(self) -> None:
        """The fit is done."""
        self.root.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y)


def _needs_double(solution: Solution) -> bool:
    """Whether rounding, and not the user's step size, was in the way."""
    in_trouble = solution.result in (Result.DIVERGED, Result.STALLED)
    return in_trouble and isinstance(solution.solver, (BlockDescent, CG))


def _key(random_state: Any) -> jax.Array:
    return jax.random.key(int(check_random_state(random_state).randint(2**31)))
