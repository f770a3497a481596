"""`learn`: a better model from data, by the method that fits their size."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from dualgp._arrays import in_wide
from dualgp._checks import check_count, check_key, check_targets
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning.checkpoint import LearningFile
from dualgp.learning.exact import Exact
from dualgp.learning.full import FullData
from dualgp.learning.method import Ending, Method, Outcome
from dualgp.learning.priors import DEFAULT_PRIORS, Priors
from dualgp.learning.problem import LastSolve, Problem, Step, make_problem
from dualgp.operators import policy
from dualgp.posterior import Posterior
from dualgp.solvers import Result, Solver, as_solver
from dualgp.solvers.stopping import Deadline, as_deadline

LEAST_POINTS = 5  # without priors: fewer points than the parameters of the simplest model, and one to spare


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned model and how it came about.

    - `model`: the new GaussianProcess.
    - `posterior`: given all of the data, where learning has solved for it anyway (FullData); else None.
    - `history`: a `Step` for every step. `message`: what was done, in a sentence.
    - `finished`: False if Ctrl-C or the time limit ended it before it was done, or the last solve did not converge.
      `interrupted` and `timed_out` say which.
    """

    model: GaussianProcess
    posterior: Posterior | None = field(repr=False)
    history: tuple[Step, ...] = field(repr=False)
    message: str
    finished: bool = True
    interrupted: bool = False
    timed_out: bool = False


@in_wide
def learn(
    model: GaussianProcess,
    x: Any,
    y: Any,
    *,
    key: RandomKey | None = None,
    method: Method | str = "auto",
    priors: Priors = DEFAULT_PRIORS,
    fixed: Sequence[str] = (),
    solver: Solver | str = "auto",
    num_samples: int = 64,
    mesh: Any = None,
    max_seconds: float | Deadline | None = None,
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
    - `max_seconds`: end about then with the best so far; or a `Deadline` that has begun. `FullData` learns for 6/10 of
      it, so that the last solve has the rest.
    - `checkpoint`: a file for `FullData` to note every step in, and a second one, with ".solve" added, for the last
      solve. The same call goes on from there. Both are deleted when all is done.
    - `progress`: True shows the current step; a function is called with each `Step`, and may end learning by returning
      True.

    Lengthscales stay single numbers or one for each input, as they are in `model`.
    """
    deadline = as_deadline(max_seconds)
    x, y = _check_data(model, x, y, priors)
    last_solve = LastSolve(as_solver(solver), check_count(num_samples, "num_samples"), mesh, progress is True)
    if np.all(y == y[:1]):
        return _set_mean(model, y)
    method = _as_method(method, len(y))
    key = check_key(key, "Learning") if method.needs_key or key is not None else jax.random.key(0)
    settings = (type(method).__name__, vars(method), dict(priors or {}), fixed, last_solve.solver, num_samples)
    file = LearningFile(checkpoint, (model, x, y, key, settings))
    with _reporter(progress) as report:
        limits: dict[str, Any] = {"last_solve": last_solve, "deadline": deadline, "file": file, "report": report}
        problem = make_problem(model, x, y, priors, fixed, **limits)
        if not problem.parameters.names:
            return Learned(model, None, (), "All parameters are fixed: nothing to learn.")
        return _conclude(problem, method.run(problem, key))


def _conclude(problem: Problem, outcome: Outcome) -> Learned:
    """The answer in the user's terms; files that are not needed any more are deleted."""
    result = Result.CONVERGED if outcome.posterior is None else outcome.posterior.solution.result
    interrupted = Ending.INTERRUPTED is outcome.ending or result is Result.INTERRUPTED
    is_late = result is not Result.CONVERGED and problem.deadline.is_over()
    timed_out = not interrupted and (outcome.ending is Ending.TIMED_OUT or is_late)
    finished = result is Result.CONVERGED and not interrupted and not timed_out
    if finished and outcome.posterior is not None:
        problem.file.delete()
    model, history = jax.tree.map(np.asarray, problem.parameters.model(outcome.vector)), tuple(problem.history)
    return Learned(model, outcome.posterior, history, _summarise(problem, outcome), finished, interrupted, timed_out)


def _check_data(model: Any, x: Any, y: Any, priors: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(model, GaussianProcess):
        raise TypeError(f"model must be a GaussianProcess(kernel, noise), got {type(model).__name__}.")
    x = np.asarray(model.kernel.points(x))
    y = np.asarray(check_targets(y, x.shape[0]))
    if len(y) == 0:
        raise ValueError(f"x has no rows (shape {x.shape}). Pass at least one data point.")
    if priors is not None and not isinstance(priors, Mapping):
        raise TypeError(f"priors must be a dict such as {{'noise': LogNormal(0.1, 1.0)}} or None, got {priors!r}.")
    if priors is None and len(y) < LEAST_POINTS:
        raise ValueError(f"{len(y)} point(s) are too few to learn from without priors. Leave priors at its default.")
    model.kernel.coordinates(x[:1])  # one lengthscale for each column, or an error that says so
    return x, y


def _as_method(method: Method | str, n: int) -> Method:
    if isinstance(method, Method):
        return method
    if method == "auto":
        return Exact() if n <= policy.LEARN_EXACTLY_UP_TO else FullData()
    raise TypeError(f"method must be 'auto' or one of Exact(), Neighbours(), Subset(), FullData(), got {method!r}.")


def _set_mean(model: GaussianProcess, y: np.ndarray) -> Learned:
    """The mean of a constant is that constant; about the rest it says nothing."""
    learned = replace(model, mean=np.asarray(y[0], np.float64))
    return Learned(learned, None, (), f"All y are {float(y[0]):.4g}: the mean was set to it, the rest left as it was.")


@contextmanager
def _reporter(progress: bool | Callable[[Step], Any]) -> Iterator[Callable[[Step], Any]]:
    """What to call with each step: the user's function, a line on the screen, or nothing."""
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


def _summarise(problem: Problem, outcome: Outcome) -> str:
    """What was done, what it took and why it ended."""
    stages = Counter(step.stage for step in problem.history)
    how = "Learned from " + ", then ".join(f"{stage} ({num} steps)" for stage, num in stages.items())
    if not stages:
        is_resumed = outcome.posterior is not None and outcome.ending is Ending.COMPLETE
        how = "Had been learned before; went on with the last solve" if is_resumed else "Learned nothing"
    passes = problem.history[-1].passes if problem.history else 0.0
    passes += outcome.posterior.solution.passes if outcome.posterior is not None else 0.0
    is_early = outcome.ending in (Ending.INTERRUPTED, Ending.TIMED_OUT)
    end = f" {outcome.ending.value}: this is the best so far." if is_early else ""
    cost = f"{problem.deadline.elapsed:.3g} s" + (f" and {passes:.3g} passes" if passes else "")
    return f"{how} in {cost}.{end}"
