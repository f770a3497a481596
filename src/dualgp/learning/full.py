"""Learning from all of the data: the pathwise gradient of the log marginal likelihood (Lin et al. 2024).

With v_y = A^-1 (y - mean) and v_s = A^-1 (phi(X) w_s + epsilon_s), whose covariance is A^-1,

    d/du log p(y)  =  1/2 v_y^T A' v_y - 1/2 tr(A^-1 A')  =  1/2 v_y^T A' v_y - 1/2 E_s[v_s^T A' v_s]

These are the weights of the posterior's mean and samples: one solve gives the gradient and the posterior. The random
functions (omega, w, epsilon) stay the same from step to step, so that the estimate is a smooth function of the
parameters and each solve starts where the last one ended.

Steps are Newton-like: the first by Fisher's information of a few neighbourhoods scaled up to all rows, then corrected
by what the gradient did (BFGS). A gradient with error covariance c * F costs about c * p / 2 nats in all, nothing
against n: so few samples and loose solves are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import compiled, in_wide
from dualgp._checks import check_count
from dualgp._random import subkeys
from dualgp._types import AnyArray, Columns, RandomKey
from dualgp.learning.likelihood import NotDefinite, information
from dualgp.learning.parameters import Parameters
from dualgp.learning.problem import LEARNED, Problem, Vector
from dualgp.learning.subset import neighbour_groups
from dualgp.operators.policy import SOLVE_EXACTLY_UP_TO as EXACT_UP_TO
from dualgp.posterior import Posterior
from dualgp.solvers import BlockDescent, Result, Solver

LONGEST_STEP = 1.2  # in logarithms
TIME_SHARE = 0.6  # where time is limited, the rest is left to the last solve
SOLVE_AND_GRADIENT = 2.0  # times a gradient alone: with less time than that, none is begun
# Relative residual of each step's solve. On protein its error costs 2e-4 nats a point in the next step; 0.2 costs 1e-3.
LOOSE = 0.1
INFORMATION_GROUPS, INFORMATION_SIZE = 8, 256
TILE = 512  # rows and columns of K at a time in a gradient


@dataclass(frozen=True)
class FullData:
    """Climb the likelihood of all rows by pathwise gradients.

    **Arguments:**

    - `num_steps`: at most. `gain`: stop once the next step promises less than this many nats a point.
    - `passes`: for each step's solve, which starts from the last one's weights. `num_samples`: for the gradient.

    A gradient looks at all rows. A fifth of them is worthless: with 100,000 rows drawn from a known model it led from
    that model's own lengthscales to ones a fifth as long.
    """

    stage: ClassVar[str] = "all rows"
    num_steps: int = 12
    gain: float = 1e-3
    passes: float = 3.0
    num_samples: int = 16

    def __post_init__(self) -> None:
        check_count(self.num_steps, "num_steps", 1)
        check_count(self.num_samples, "num_samples", 1)
        for name in ("gain", "passes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}.")

    def run(
        self,
        problem: Problem,
        start: Vector,
        key: RandomKey,
        solver: Solver | str,
        num_samples: int,
        progress: bool = False,
        mesh: Any = None,
    ) -> tuple[Vector, Posterior | None]:
        """The vector of learned parameters, and the posterior that belongs to it unless it was interrupted."""
        information_key, condition_key = subkeys(key, 2)
        loose = BlockDescent(tol=LOOSE, max_passes=self.passes) if problem.n > EXACT_UP_TO else "auto"

        def solve(
            vector: Vector, solver: Any, weights: Columns | None, num_samples: int, share: float, **run: Any
        ) -> Posterior:
            run |= {"key": condition_key, "start": weights, "max_seconds": problem.seconds_left(share)}
            model = problem.parameters.model(vector)
            return model.condition(problem.x, problem.y, solver=solver, num_samples=num_samples, mesh=mesh, **run)

        def last_solve(vector: Vector, weights: Columns | None) -> Posterior:
            checkpoint = problem.notebook.solve_path if problem.notebook else None
            run = {"checkpoint": checkpoint, "progress": progress}
            weights = None if weights is None else weights[:, : 1 + num_samples]
            return solve(vector, solver, weights, num_samples, 1.0, **run)

        weights: Columns | None = problem.notebook.weights if problem.notebook else None
        problem.timed_out = False  # what came before was only to find a start
        is_learned = problem.notebook is not None and problem.notebook.stage == LEARNED
        if is_learned or not _has_time(problem, start, 1 + self.num_samples):
            return start, last_solve(start, weights)
        if weights is None and problem.max_seconds is not None:  # without any, a solve in a hurry would leave out rows
            weights = np.zeros((problem.n, 1), np.float32)
        climb = Climb(problem, _inverse_information(problem, start, information_key))
        vector, passes, total = start, 0.0, 0.0
        best, best_total = start, 0.0
        for _ in range(self.num_steps):
            posterior = solve(vector, loose, weights, self.num_samples, TIME_SHARE).gathered()
            if posterior.solution.result is Result.INTERRUPTED:
                problem.interrupted = True
                return best, None
            if posterior.solution.result is Result.DIVERGED:  # hardly any noise: go back to where it could be solved
                weights = None
                break
            weights, passes = posterior.weights, passes + posterior.solution.passes
            try:
                is_late = lambda: problem.is_over(TIME_SHARE)  # noqa: E731
                gradient = pathwise_gradient(problem.parameters, vector, posterior, is_late)
            except KeyboardInterrupt:
                problem.interrupted = True
                return best, None
            if gradient is None:
                break
            gradient = gradient - problem.penalty(vector)[1]
            total += climb.look(vector, gradient)
            problem.note(self.stage, total / problem.n, vector, passes, weights)
            if total >= best_total:
                best, best_total = vector, total
            step = climb.step()
            if climb.promise / problem.n < self.gain or problem.is_over(TIME_SHARE):
                break
            vector = problem.clipped(vector + step)
        # With more time it would learn more; and without weights there is nothing to start the last solve from.
        if problem.notebook and weights is not None and not problem.is_over(TIME_SHARE):
            problem.notebook.write(LEARNED, best, weights)
        return best, last_solve(best, weights)


class Climb:
    """Newton-like steps up a smooth function known by its gradient; `promise` is what the next step should gain."""

    def __init__(self, problem: Problem, inverse: Float[np.ndarray, "free free"]) -> None:
        self.problem, self.inverse, self.promise = problem, inverse, np.inf
        self.last: tuple[Vector, Vector] | None = None

    def look(self, vector: Vector, gradient: Vector) -> float:
        """Take note of a point; the gain since the last one, by the trapezium rule."""
        last, self.last = self.last, (vector, gradient)
        if last is None:
            return 0.0
        step, change = vector - last[0], last[1] - gradient
        curvature = step @ change
        if curvature > 1e-3 * abs(step @ last[1]):  # BFGS; else the function is not concave along the step
            left = np.eye(len(step)) - np.outer(step, change) / curvature
            self.inverse = left @ self.inverse @ left.T + np.outer(step, step) / curvature
        return 0.5 * float(step @ (last[1] + gradient))

    def step(self) -> Vector:
        """Where to go next, relative to the last point."""
        vector, gradient = self.last
        step = self.inverse @ gradient
        longest = np.max(np.abs(step), initial=0.0)
        step = step * min(1.0, LONGEST_STEP / max(longest, 1e-300))
        step = self.problem.clipped(vector + step) - vector
        self.promise = 0.5 * float(step @ gradient)
        return step


@in_wide
def pathwise_gradient(
    parameters: Parameters, vector: Vector, posterior: Posterior, is_late: Callable[[], bool] = lambda: False
) -> Float[np.ndarray, " free"] | None:
    """The gradient of the log likelihood from a posterior's weights, or None if it got too late on the way."""
    x, weights = jnp.asarray(posterior.x), jnp.asarray(posterior.weights)
    x_tiles, v_tiles = _tiles(x), _tiles(weights, 0.0)
    point, share = jnp.asarray(vector), _share(weights)
    gradient = np.asarray(_noise_and_mean_gradient(parameters, point, weights, share))
    for row in range(len(x_tiles)):  # back to Python in between, for Ctrl-C and the clock
        if is_late():
            return None
        gradient = gradient + np.asarray(_kernel_gradient(parameters, point, x_tiles, v_tiles, share, jnp.int32(row)))
    return gradient


@in_wide
def _has_time(problem: Problem, vector: Vector, num_columns: int) -> bool:
    """Whether there is time for a solve and a gradient, which is known from the first row of tiles."""
    if problem.is_over(TIME_SHARE):
        return False
    if problem.max_seconds is None:
        return True
    x = _tiles(jnp.asarray(problem.parameters.model(vector).kernel.stored(problem.x, np.float32)))
    v = jnp.zeros((*x.shape[:2], num_columns), jnp.float32)
    for _ in range(2):  # the first time it is compiled
        began = problem.seconds
        _kernel_gradient(problem.parameters, jnp.asarray(vector), x, v, _share(v[0]), jnp.int32(0)).block_until_ready()
    seconds = (problem.seconds - began) * len(x) / 2  # rows get shorter towards the end: half a square
    problem.timed_out |= SOLVE_AND_GRADIENT * seconds > problem.seconds_left(TIME_SHARE)
    return not problem.timed_out


def _tiles(rows: AnyArray, filler: float | None = None) -> Float[Array, "tiles size columns"]:
    """Rows in tiles; without a filler the last one is filled with a real point, as zeros could lie far away."""
    padding = (-len(rows) % TILE, rows.shape[1])
    more = jnp.broadcast_to(rows[:1] if filler is None else jnp.asarray(filler, rows.dtype), padding)
    return jnp.concatenate([rows, more]).reshape(-1, TILE, rows.shape[1])


def _share(weights: Columns) -> Float[Array, " s"]:
    """What each column counts in the gradient: the mean's 1/2, the samples together -1/2."""
    return jnp.full(weights.shape[1], -0.5 / (weights.shape[1] - 1), weights.dtype).at[0].set(0.5)


@compiled
def _kernel_gradient(
    parameters: Parameters,
    vector: AnyArray,
    x: Float[Array, "tiles size d"],
    v: Float[Array, "tiles size s"],
    share: Float[Array, " s"],
    row: Int[Array, ""],
) -> Float[Array, " free"]:
    """d/du of sum_s share_s v_s^T K v_s, the part of a row of tiles from the diagonal on, and of its mirror image."""

    def add(column: Array, total: Float[Array, " free"]) -> Float[Array, " free"]:
        _, pull_back = jax.vjp(lambda vector: parameters.model(vector).kernel(x[row], x[column]), vector)
        times = jnp.where(column == row, 1.0, 2.0).astype(v.dtype)
        return total + pull_back(times * (v[row] * share) @ v[column].T)[0]

    return jax.lax.fori_loop(row, x.shape[0], add, jnp.zeros_like(vector))


@eqx.filter_jit
def _noise_and_mean_gradient(
    parameters: Parameters, vector: AnyArray, v: Columns, share: Float[Array, " s"]
) -> Float[Array, " free"]:
    """d/du of noise * sum_s share_s v_s^T v_s + mean * 1^T v_y."""
    wide = v.astype(vector.dtype)

    def form(vector: AnyArray) -> Float[Array, ""]:
        model = parameters.model(vector)
        noise, mean = jnp.asarray(model.noise), jnp.asarray(model.mean)
        return noise * jnp.sum(share * jnp.sum(wide**2, axis=0)) + mean * jnp.sum(wide[:, 0])

    return jax.grad(form)(vector)


def _inverse_information(problem: Problem, vector: Vector, key: RandomKey) -> Float[np.ndarray, "free free"]:
    groups = neighbour_groups(problem, vector, INFORMATION_GROUPS, INFORMATION_SIZE, key)
    rows = sum(len(group.y) for group in groups)
    try:
        total = sum(information(problem.parameters, vector, group) for group in groups) * (problem.n / rows)
    except NotDefinite:  # hardly any noise: as if every row said something about every parameter
        total = np.eye(len(vector)) * problem.n
    total = total + np.diag(problem.penalty.curvature)
    # A parameter that the data say nothing about (an irrelevant input) moves slowly rather than not at all.
    total += np.diag(np.full(len(vector), 1e-4 * problem.n))
    return np.linalg.inv(total)
