"""`learn`: a better model from data, by the method that fits their size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from dualgp._arrays import in_wide
from dualgp._checks import check_count, check_key, check_targets
from dualgp._random import subkeys
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning.exact import Exact
from dualgp.learning.full import FullData
from dualgp.learning.neighbours import Neighbours
from dualgp.learning.priors import DEFAULT_PRIORS, LogNormal
from dualgp.learning.problem import LEARNED, Notebook, Problem, Step, Vector, make_problem
from dualgp.learning.subset import Subset
from dualgp.posterior import Posterior
from dualgp.solvers import Result, Solver
from dualgp.solvers.solve import as_solver

EXACT_UP_TO = 1500  # points: three starts of exact likelihood take seconds there
LEAST_POINTS = 5  # without priors

Method = Exact | Subset | Neighbours | FullData


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned model and how it came about.

    - `model`: the new GaussianProcess.
    - `posterior`: given all of the data, where learning has solved for it anyway (FullData); else None.
    - `history`: a `Step` for every step. `message`: what was done, in a sentence.
    - `finished`: False if Ctrl-C or the time limit ended it before it was done, or the last solve did not converge.
    """

    model: GaussianProcess
    posterior: Posterior | None = field(repr=False)
    history: tuple[Step, ...] = field(repr=False)
    message: str
    finished: bool = True


@in_wide
def learn(
    model: GaussianProcess,
    x: Any,
    y: Any,
    *,
    key: RandomKey | None = None,
    method: Method | str = "auto",
    priors: Mapping[str, LogNormal] | None = DEFAULT_PRIORS,
    fixed: Sequence[str] = (),
    solver: Solver | str = "auto",
    num_samples: int = 64,
    mesh: Any = None,
    max_seconds: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool | Callable[[Step], Any] = False,
) -> Learned:
    """Hyperparameters that make the data probable, found from those of `model`.

    **Arguments:**

    - `x` (n, d), `y` (n,): the data.
    - `method`: "auto" is `Exact()` up to 1,500 points, and beyond `Neighbours()`, then `FullData()` from there. Any of
      them, or `Subset()`, may be given; `FullData` always starts from `Neighbours`.
    - `priors`: by the name of a parameter, relative to the scale of the data; None for the plain likelihood.
    - `fixed`: names of parameters to leave alone, such as "noise", "mean", "lengthscale" or "kernel.left.variance".
      Infinite lengthscales stay infinite.
    - `solver`, `num_samples`: for the posterior that `FullData` ends with. `mesh`: devices of this process for its
      solves, as for `condition`.
    - `max_seconds`: `FullData` stops after about 6/10 of it, so that the last solve has the rest.
    - `checkpoint`: a file for `FullData` to note every step in, and a second one, with ".solve" added, for the last
      solve. The same call goes on from there. Both are deleted when all is done.
    - `progress`: True shows the current step; a function is called with each `Step`, and may end learning by returning
      True.

    Lengthscales stay single numbers or one for each input, as they are in `model`.
    """
    if not isinstance(model, GaussianProcess):
        raise TypeError(f"model must be a GaussianProcess(kernel, noise), got {type(model).__name__}.")
    if priors is not None and not isinstance(priors, Mapping):
        raise TypeError(f"priors must be a dict such as {{'noise': LogNormal(0.1, 1.0)}} or None, got {priors!r}.")
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"max_seconds must be positive, got {max_seconds!r}. Leave it out for no limit.")
    x = np.asarray(model.kernel.points(x))
    y = np.asarray(check_targets(y, x.shape[0]))
    check_count(num_samples, "num_samples")
    if len(y) == 0:
        raise ValueError(f"x has no rows (shape {x.shape}). Pass at least one data point.")
    model.kernel.coordinates(x[:1])  # one lengthscale for each column, or an error that says so
    if np.all(y == y[:1]):
        return _constant(model, y)
    if priors is None and len(y) < LEAST_POINTS:
        raise ValueError(f"{len(y)} point(s) are too few to learn from without priors. Leave priors at its default.")
    method = _as_method(method, len(y))
    key = jax.random.key(0) if key is None and isinstance(method, Exact) else check_key(key, "Learning")
    solver, notebook = as_solver(solver), None
    if checkpoint is not None and isinstance(method, FullData):
        notebook = Notebook(checkpoint, (model, x, y, key, repr((method, priors, fixed, solver, num_samples))))
    with _reporter(progress) as report:
        problem = make_problem(model, x, y, priors, fixed, max_seconds, report, notebook)
        if not problem.parameters.names:
            return Learned(model, None, (), "All parameters are fixed: nothing to learn.")
        vector, posterior = _run(method, problem, key, solver, num_samples, progress is True, mesh)
    learned = jax.tree.map(np.asarray, problem.parameters.model(vector))
    is_solved = posterior is None or posterior.solution.result is Result.CONVERGED
    finished = is_solved and not (problem.interrupted or problem.timed_out)
    if notebook and finished and posterior is not None:
        notebook.close()
    return Learned(learned, posterior, tuple(problem.history), _message(problem, posterior), finished)


def _run(
    method: Method, problem: Problem, key: RandomKey, solver: Solver | str, num_samples: int, progress: bool, mesh: Any
) -> tuple[Vector, Posterior | None]:
    start_key, full_key = subkeys(key, 2)
    if not isinstance(method, FullData):
        return method.run(problem, start_key), None
    if problem.notebook and problem.notebook.stage in (FullData.stage, LEARNED):
        vector = problem.notebook.vector
    else:
        vector = Neighbours().run(problem, start_key)
    if problem.interrupted:
        return vector, None
    return method.run(problem, vector, full_key, solver, num_samples, progress, mesh)


def _as_method(method: Method | str, n: int) -> Method:
    if isinstance(method, Method):
        return method
    if method == "auto":
        return Exact() if n <= EXACT_UP_TO else FullData()
    raise TypeError(f"method must be 'auto' or one of Exact(), Neighbours(), Subset(), FullData(), got {method!r}.")


def _constant(model: GaussianProcess, y: np.ndarray) -> Learned:
    """The mean of a constant is that constant; about the rest it says nothing."""
    learned = eqx.tree_at(lambda model: model.mean, model, np.asarray(y[0], np.float64))
    return Learned(learned, None, (), f"All y are {float(y[0]):.4g}: the mean was set to it, the rest left as it was.")


@contextmanager
def _reporter(progress: bool | Callable[[Step], Any]) -> Iterator[Callable[[Step], Any]]:
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda step: None
    else:
        from tqdm.auto import tqdm

        with tqdm(bar_format="{desc}", desc="Learning: compiling the first step") as bar:
            yield lambda step: bar.set_description_str(_line(step))


def _line(step: Step) -> str:
    what = "log likelihood gained" if step.stage == FullData.stage else "log likelihood"
    state = f"Learning from {step.stage}, {step.seconds:.0f} s: {what} {step.value:.4f} a point"
    return f"{state}, noise {float(step.model.noise):.3g}"


def _message(problem: Problem, posterior: Posterior | None) -> str:
    parts = []
    for stage in dict.fromkeys(step.stage for step in problem.history):
        steps = [step for step in problem.history if step.stage == stage]
        parts.append(f"{stage} ({len(steps)} steps)")
    passes = problem.history[-1].passes if problem.history else 0.0
    passes += posterior.solution.passes if posterior is not None else 0.0
    cost = f"{problem.seconds:.3g} s" + (f" and {passes:.3g} passes" if passes else "")
    end = " Interrupted: this is the best so far." if problem.interrupted else ""
    if problem.timed_out and not problem.interrupted:
        end = " The time limit ended it: this is the best so far."
    how = f"Learned from {', then '.join(parts)}" if parts else "Learned nothing"
    if problem.notebook and problem.notebook.stage == LEARNED:
        how = "Had been learned before; went on with the last solve"
    return f"{how} in {cost}.{end}"
