"""The stages of a fit: learning, conditioning, and setting the fitted attributes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from sklearn.utils import check_random_state

from dualgp._checks import as_float_array
from dualgp.checkpoints import delete
from dualgp.gp import GaussianProcess
from dualgp.kernels import Kernel
from dualgp.kernels.translate import rescaled, translated
from dualgp.learning.robust import Weighing
from dualgp.operators import policy
from dualgp.operators.layout import as_mesh
from dualgp.operators.noise import check_noise
from dualgp.posterior import Posterior
from dualgp.sklearn.callbacks import Watcher
from dualgp.sklearn.conditioning import Conditioning
from dualgp.sklearn.prediction import Predicting
from dualgp.sklearn.preparation import NOISE
from dualgp.solvers import CG, Auto, BlockDescent, DivergenceWarning, Result, Solution, as_solver


class Fitting(Predicting):
    """The methods of `GPRegressor` that learn and condition."""

    kernel: Any
    noise: Any
    solver: Any
    learn: Any
    n_samples: Any
    tol: Any
    checkpoint: Any
    devices: Any
    random_state: Any
    verbose: Any
    robust: Any

    @property
    def _is_free(self) -> bool:
        """Whether kernel and noise are both left open, so that transform and trend may be chosen."""
        return self.learn and self.kernel is None and not self._has_given_noise and not self.robust

    @property
    def _has_given_noise(self) -> bool:
        return self.noise is not None and not self._varies

    @property
    def _varies(self) -> bool:
        """Whether the noise depends on the inputs."""
        return isinstance(self.noise, str) and self.noise == "input-dependent"

    def _check_noise(self, y: np.ndarray) -> None:
        if isinstance(self.noise, str) and not self._varies:
            raise TypeError(f"noise must be real numbers, 'input-dependent' or None, got {self.noise!r}.")
        if self.robust and (self._varies or y.ndim > 1):
            raise ValueError(
                "robust=True is for one output and noise that does not depend on the inputs: large errors are either "
                "outliers or noise. Choose one of them, or fit each output by itself."
            )

    @property
    def _widths(self) -> tuple[int, ...] | None:
        """How many inputs share each lengthscale."""
        return None if self.encoding_ is None else self.encoding_.widths

    def _settings(self, n: int) -> dict[str, Any]:
        """Settings of `learn` and `condition`."""
        num_samples = policy.check_functions(self.n_samples, n, "n_samples")
        mesh = None if self.devices is None else as_mesh(self.devices)
        solver = as_solver(self._solver())
        return {"solver": solver, "num_samples": num_samples, "mesh": mesh, "progress": bool(self.verbose)}

    def _learn(
        self, model: GaussianProcess, condition: Conditioning, watcher: Watcher | None, kernel: Kernel
    ) -> tuple[Posterior, Conditioning]:
        """The posterior of a learned model, starting from `model`, and how it was conditioned.

        `kernel`: that of the noise field, if the noise depends on the inputs.
        """
        fixed = ("noise",) if self._has_given_noise else ()
        watch = watcher if watcher and watcher.has_company else None
        run: dict[str, Any] = {"checkpoint": self.checkpoint, "watch": watch, "robust": bool(self.robust)}
        learned = condition.learn(model, fixed, choose_kernel=self.kernel is None, **run)
        if self._varies and learned.finished:
            condition, model = self._vary(learned.model, condition, kernel)
            again = condition.learn(model, fixed, **run)
            learned = replace(again, message=f"{learned.message} {again.message}")
        elif self._varies:
            learned = replace(learned, message=f"{learned.message} There was no time for a noise that varies.")
        condition = condition.with_rows_of(learned)
        self.message_, self.interrupted_ = learned.message, learned.interrupted
        if np.all(condition.targets == condition.targets[:1]):
            self.message_ = f"All targets are {shown(self.y_offset_)}: there is nothing to learn."
            warnings.warn(f"{self.message_} Error bars are those of a guess.", UserWarning, stacklevel=3)
        posterior = learned.posterior
        if posterior is None:  # few rows; or interrupted, and then at most a pass
            solve = None if self.checkpoint is None or learned.interrupted else f"{self.checkpoint}.solve"
            posterior = condition(learned.model, max_passes=1.0 if learned.interrupted else None, checkpoint=solve)
        self.finished_ = learned.finished and posterior.solution.result is Result.CONVERGED
        return posterior, condition

    def _take_as_given(
        self, model: GaussianProcess, condition: Conditioning, watcher: Watcher | None, kernel: Kernel
    ) -> tuple[Posterior, Conditioning]:
        """The posterior of `model` without learning."""
        self.message_ = "Parameters as given."
        if self._varies:
            condition, model = self._vary(model, condition, kernel)
        elif self.noise is None and (self.kernel is None or translated(self.kernel, False)[1] is None):
            self.message_ += f" The noise was not: {NOISE:g} of the variance of y was assumed."
        if self.robust:
            condition, said = condition.weighed(model)
            self.message_ += f" {said}"
        posterior = condition(model, checkpoint=self.checkpoint)
        self.finished_ = posterior.solution.result is Result.CONVERGED
        return posterior, condition

    def _vary(
        self, model: GaussianProcess, condition: Conditioning, kernel: Kernel
    ) -> tuple[Conditioning, GaussianProcess]:
        """The same with input-dependent noise, and the model with its geometric mean."""
        kernel = kernel if model.kernel.is_stationary else model.kernel
        condition, model, self.noise_field_ = condition.varying(model, kernel)
        return condition, model

    def _weighed(
        self, x: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Targets and noise of new rows; None for the model's."""
        if weights is None and self.noise_field_ is None and not self.robust:
            return targets, None
        noise = self._noise_at(x) if weights is None else self._noise_at(x) / weights
        if not self.robust or not len(x):
            return targets, noise
        mean, std = self.posterior_.predict(x, noise=noise)
        weighing = Weighing(targets - mean, np.asarray(std, np.float64))
        return targets + weighing.shift(noise), weighing.variances(noise)

    def _conclude(self, posterior: Posterior, condition: Conditioning, checkpoint: Any) -> None:
        """Solve again in float64 if float32 was not enough, and set the fitted attributes."""
        if _needs_double(posterior.solution) and posterior.targets.dtype == np.float32:
            posterior = condition(posterior.model, dtype=np.float64)
            self.message_ += " Float32 was not enough, so it was solved again in float64."
            self.finished_ = posterior.solution.result is Result.CONVERGED
            if self.finished_ and checkpoint is not None:  # the checkpoint of the float32 solve is obsolete
                for piece in (checkpoint, f"{checkpoint}.solve"):
                    delete(piece)
        if posterior.solution.result is Result.DIVERGED:
            warnings.warn(posterior.solution.message, DivergenceWarning, stacklevel=3)
        self._keep(posterior)

    def _start(self, start: GaussianProcess) -> GaussianProcess:
        """The model to start from, for centred inputs and standardised targets: `start` with given values put in."""
        units = self.units_.of_parameters**2
        kernel, noise = rescaled(start.kernel, units), float(start.noise) * units
        if self.kernel is not None:
            kernel, white = translated(self.kernel, self.learn, len(self.X_offset_))
            noise = noise if white is None else white
        if self._has_given_noise:
            given = as_float_array(self.noise, "noise")
            check_noise(given)  # in the units of the user
            noise = float(given)
        return GaussianProcess(rescaled(kernel, 1.0 / units), np.asarray(noise / units))

    def _key(self) -> jax.Array:
        """The random key. With a checkpoint None means 0, because a resumed fit must draw the same numbers."""
        return random_key(0 if self.random_state is None and self.checkpoint is not None else self.random_state)

    def _solver(self) -> Any:
        return Auto(tol=self.tol) if isinstance(self.solver, str) and self.solver == "auto" else self.solver

    def _keep(self, posterior: Posterior) -> None:
        """The fitted attributes."""
        model, score = posterior.model, posterior.solution.validation
        self.posterior_ = posterior
        self.kernel_: Kernel = rescaled(model.kernel, self.units_.of_parameters**2)
        self.noise_ = float(model.noise) * self.y_scale_**2
        means = np.broadcast_to(model.mean, np.shape(self.y_scale_))
        self.mean_ = self.units_.outputs(means) if means.ndim else float(self.units_.outputs(float(means)))
        has_units = posterior.num_outputs == 1 and self.units_.is_plain
        self.validation_ = score.in_units(self.y_scale_) if score and has_units else None
        lengthscale = getattr(model.kernel, "lengthscales", getattr(model.kernel, "lengthscale", None))
        self.__dict__.pop("lengthscale_", None)  # from an earlier fit with another kernel
        if lengthscale is not None:
            self.lengthscale_ = np.broadcast_to(np.asarray(lengthscale, np.float64), (posterior.d,)).copy()


def shown(value: Any) -> str:
    """One number, or one for each output."""
    return f"{value:.4g}" if np.ndim(value) == 0 else np.array2string(value, precision=4, threshold=8, separator=", ")


def _needs_double(solution: Solution) -> bool:
    """Whether rounding ended the solve, and not a step size of the user."""
    in_trouble = solution.result in (Result.DIVERGED, Result.STALLED)
    return in_trouble and isinstance(solution.solver, (BlockDescent, CG))


def random_key(random_state: Any) -> jax.Array:
    """A JAX key from a scikit-learn `random_state`."""
    return jax.random.key(int(check_random_state(random_state).randint(2**31)))
