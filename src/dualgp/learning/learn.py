"""`learn`: a better model from data, by the method that fits their size."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from dualgp._arrays import bound_programs, in_wide
from dualgp._checks import check_count, check_key, check_outputs, check_points, check_spread
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.learning.candidates import default_model, with_rivals
from dualgp.learning.checkpoint import LearningFile
from dualgp.learning.exact import Exact
from dualgp.learning.full import LEARN_SHARE, FullData
from dualgp.learning.method import Ending, Method, Outcome
from dualgp.learning.priors import DEFAULT_PRIORS, Priors, check_prior
from dualgp.learning.problem import LastSolve, Problem, Step, make_problem
from dualgp.learning.robust import learn_robustly
from dualgp.learning.rows import NoiseRole, Rows, as_rows, merge
from dualgp.learning.vecchia import Neighbours
from dualgp.operators import policy
from dualgp.operators.noise import check_noises
from dualgp.posterior import Posterior
from dualgp.solvers import Result, Solver, as_solver
from dualgp.solvers.stopping import Deadline, as_deadline

# Beyond, gradients from all rows take longer than all other stages and change the RMSE by less than 0.2 %
# (docs/project/lab_notes.md); up to SOLVE_EXACTLY_UP_TO no step of five tables was worth taking (benchmarks/tables.py).
ALL_ROWS_UP_TO = 20_000
WORTH_A_STEP = 5e-3  # nats a row
COMPARE_FROM = 100  # points: fewer say little about which kernel is best
LEAST_POINTS = 5  # without priors: fewer points than the parameters of the simplest model, and one to spare


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned model, and how it was learned.

    - `model`: the new GaussianProcess.
    - `posterior`: given all of the data, where learning has solved for it anyway (FullData); else None.
    - `history`: a `Step` for every step. `message`: what was done, in a sentence.
    - `finished`: False if Ctrl-C or the time limit ended it before it was done, or the last solve did not converge.
      `interrupted` and `timed_out` say which.
    - `kernels`: where kernels were compared, how many nats a row each was worse than the one that was chosen.
    - `noise`: the variance of every row, for `model.condition(x, y, noise=...)`; None where it is the model's.
    - `targets`: where learning was `robust`, what to condition on in place of y, with that noise.
    """

    model: GaussianProcess
    posterior: Posterior | None = field(repr=False)
    history: tuple[Step, ...] = field(repr=False)
    message: str
    finished: bool = True
    interrupted: bool = False
    timed_out: bool = False
    kernels: Mapping[str, float] = field(default_factory=dict)
    noise: np.ndarray | None = field(default=None, repr=False)
    targets: np.ndarray | None = field(default=None, repr=False)


@in_wide
def learn(
    model: GaussianProcess | None,
    x: Any,
    y: Any,
    *,
    key: RandomKey | None = None,
    method: Method | str = "auto",
    priors: Priors = DEFAULT_PRIORS,
    fixed: Sequence[str] = (),
    noise: Any = None,
    noise_role: NoiseRole = "added",
    robust: bool = False,
    choose_kernel: bool = False,
    solver: Solver | str = "auto",
    num_samples: int = 16,
    mesh: Any = None,
    max_seconds: float | Deadline | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool | Callable[[Step], Any] = False,
) -> Learned:
    """Hyperparameters that make the data probable, found from those of `model`.

    **Arguments:**

    - `x` (n, d), `y` (n,): the data. With (n, k) targets one kernel and one noise are learned from k outputs together,
      and a mean for each: bring outputs to one scale first.
    - `model`: where to start from; its kernel stays. None compares kernels (`choose_kernel`).
    - `method`: "auto" is `Exact()` up to 1,500 points and `Neighbours()` beyond. Between 4,096 and 20,000 points
      `FullData()` climbs the likelihood of all rows from there, as long as a step promises 0.005 nats a row. All of
      them may be given, and `Subset()`.
    - `priors`: by the name of a parameter, relative to the scale of the data; None for the plain likelihood.
    - `fixed`: names of parameters to leave alone, such as "noise", "mean", "lengthscale" or "kernel.left.variance".
      Infinite lengthscales stay infinite.
    - `noise`: a known variance for each row. The model's noise is learned beyond that: `noise_role="added"` adds it to
      all of them, "factor" multiplies them by it, as with one over weights. `fixed="noise"` leaves it as it is.
      `Learned.noise` has the sums or products.
    - `robust`: find outliers, learn without them, and give rows that are far from what others say a larger noise (see
      robust.py): `model.condition(x, learned.targets, noise=learned.noise)`. For one output; `noise` must be factors.
    - `choose_kernel`: compare other stationary kernels with that of `model`, from 100 points on, and keep the best.
    - `solver`, `num_samples`: for the posterior that `FullData` ends with. `mesh`: devices of this process for its
      solves, as for `condition`.
    - `max_seconds`: end about then with the best so far; or a `Deadline` that has begun. `FullData` learns for 6/10 of
      it, so that the last solve has the rest.
    - `checkpoint`: a file that keeps every step. The same call resumes from it, to the same model. `FullData` has a
      second one, with ".solve" added, for its last solve. They are deleted when all is done.
    - `progress`: True shows a bar; a function is called with each `Step`, and may end learning by returning
      True.

    Lengthscales stay single numbers or one for each input, as they are in `model`.
    """
    bound_programs()
    deadline = as_deadline(max_seconds)
    if model is None:
        model, choose_kernel = default_model(check_points(x), check_outputs(y, len(x))), True
    x, y = _check_data(model, x, y, priors)
    if robust:
        _check_robust(y, noise, noise_role)
        factors = np.ones(len(y)) if noise is None else check_noises(noise, len(y))
        own: dict[str, Any] = {"key": key, "priors": priors, "fixed": fixed, "noise_role": "factor", "mesh": mesh}
        quick = partial(learn, method=_quick(len(y)), max_seconds=deadline.share(0.5), progress=progress, **own)
        own |= {"method": method, "choose_kernel": choose_kernel, "solver": solver, "num_samples": num_samples}
        final = partial(learn, max_seconds=deadline, checkpoint=checkpoint, progress=progress, **own)
        return learn_robustly(final, quick, model, x, y, factors)
    given = as_rows(x, y, noise, noise_role)
    if given.y.shape[1] > 1 and not np.ndim(model.mean):
        model = replace(model, mean=np.full(given.y.shape[1], float(model.mean)))
    last_solve = LastSolve(as_solver(solver), check_count(num_samples, "num_samples"), mesh, progress is True)
    if np.all(y == y[:1]):
        return _set_mean(model, given)
    method = _as_method(method, len(y))
    key = check_key(key, "Learning") if method.needs_key or key is not None else jax.random.key(0)
    beliefs = (dict(priors or {}), fixed, choose_kernel, noise_role)
    settings = (type(method).__name__, vars(method), *beliefs, last_solve.solver, num_samples)
    file = LearningFile(checkpoint, (model, given, key, settings))
    with _reporter(progress) as report:
        limits: dict[str, Any] = {"last_solve": last_solve, "deadline": deadline, "file": file, "report": report}
        problem = make_problem(model, merge(given), priors, fixed, given.usual_factor, given=given, **limits)
        if choose_kernel and len(y) >= COMPARE_FROM:
            problem = with_rivals(problem, priors, fixed)
        if not problem.parameters.names:
            return Learned(model, None, (), "All parameters are fixed: nothing to learn.")
        return _conclude(problem, method.run(problem, key))


def _conclude(problem: Problem, outcome: Outcome) -> Learned:
    """The result for the user; checkpoints that are no longer needed are deleted."""
    result = Result.CONVERGED if outcome.posterior is None else outcome.posterior.solution.result
    interrupted = Ending.INTERRUPTED is outcome.ending or result is Result.INTERRUPTED
    is_late = result is not Result.CONVERGED and problem.deadline.is_over()
    timed_out = not interrupted and (outcome.ending is Ending.TIMED_OUT or is_late)
    finished = result is Result.CONVERGED and not interrupted and not timed_out
    if finished:
        problem.file.delete(with_solve=outcome.posterior is not None)
    model = jax.tree.map(np.asarray, outcome.problem.parameters.model(outcome.vector))
    lost = outcome.choice.lost if outcome.choice else {}
    message, noise = _summarise(problem, outcome), problem.given_rows.variances(model.noise)
    steps = tuple(problem.history)
    return Learned(model, outcome.posterior, steps, message, finished, interrupted, timed_out, lost, noise)


def _check_data(model: Any, x: Any, y: Any, priors: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(model, GaussianProcess):
        raise TypeError(f"model must be a GaussianProcess(kernel, noise), got {type(model).__name__}.")
    x = np.asarray(model.kernel.points(x))
    y = np.asarray(check_outputs(y, x.shape[0]))
    if len(y) == 0:
        raise ValueError(f"x has no rows (shape {x.shape}). Pass at least one data point.")
    check_spread(y)
    if priors is not None and not isinstance(priors, Mapping):
        raise TypeError(f"priors must be a dict such as {{'noise': LogNormal(0.1, 1.0)}} or None, got {priors!r}.")
    for name, belief in (priors or {}).items():
        check_prior(belief, name)
    if priors is None and len(y) < LEAST_POINTS:
        raise ValueError(f"{len(y)} point(s) are too few to learn from without priors. Leave priors at its default.")
    model.kernel.coordinates(x[:1])  # one lengthscale for each column, or an error that says so
    return x, y


def _check_robust(y: np.ndarray, noise: Any, role: NoiseRole) -> None:
    if y.ndim > 1:
        raise ValueError(f"robust=True is for one output, y has shape {y.shape}. Learn each output by itself.")
    if noise is not None and role != "factor":
        raise ValueError('With robust=True a noise of the rows must be factors: noise_role="factor".')


def _quick(n: int) -> Method:
    """The method with which outliers are found."""
    return Exact(num_starts=1) if n <= policy.LEARN_EXACTLY_UP_TO else Neighbours()


def _as_method(method: Method | str, n: int) -> Method:
    if isinstance(method, Method):
        return method
    if method == "auto":
        return _default(n)
    raise TypeError(f"method must be 'auto' or one of Exact(), Neighbours(), Subset(), FullData(), got {method!r}.")


def _default(n: int) -> Method:
    if n <= policy.LEARN_EXACTLY_UP_TO:
        return Exact()
    has_more_to_say = policy.SOLVE_EXACTLY_UP_TO < n <= ALL_ROWS_UP_TO
    return FullData(gain=WORTH_A_STEP) if has_more_to_say else Neighbours()


def time_to_learn(deadline: Deadline, n: int) -> Deadline:
    """The deadline of learning with "auto", within a limit that includes the solve for the posterior."""
    ends_with_solve = isinstance(_default(n), Exact | FullData)  # or with one that takes no time
    return deadline if ends_with_solve else deadline.share(LEARN_SHARE)


def _set_mean(model: GaussianProcess, rows: Rows) -> Learned:
    """The model of a constant target: its mean is the constant, other parameters stay."""
    mean = rows.y[0] if rows.y.shape[1] > 1 else rows.y[0, 0]
    message = f"All y are {np.array2string(mean, precision=4)}: the mean was set to it, the rest left as it was."
    return Learned(replace(model, mean=mean), None, (), message, noise=rows.variances(model.noise))


@contextmanager
def _reporter(progress: bool | Callable[[Step], Any]) -> Iterator[Callable[[Step], Any]]:
    """What to call with each step: the user's function, a bar on the screen, or nothing."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda step: None
    else:
        from tqdm.auto import tqdm

        layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        with tqdm(total=100.0, desc="Learning", bar_format=layout) as bar:

            def show(step: Step) -> None:
                bar.n = max(bar.n, 100.0 * step.share)
                bar.set_postfix_str(_line(step))

            yield show


def _line(step: Step) -> str:
    what = "gained" if step.stage == FullData.stage else "log likelihood"
    return f"from {step.stage}: {what} {step.value:.4f} a point, noise {float(step.model.noise):.3g}"


def _summarise(problem: Problem, outcome: Outcome) -> str:
    """What was done, what it took and why it ended."""
    stages = Counter(step.stage for step in problem.history)
    how = "Learned from " + ", then ".join(f"{stage} ({num} steps)" for stage, num in stages.items())
    how = how if stages else "Learned nothing"
    passes = problem.history[-1].passes if problem.history else 0.0
    passes += outcome.posterior.solution.passes if outcome.posterior is not None else 0.0
    is_early = outcome.ending in (Ending.INTERRUPTED, Ending.TIMED_OUT)
    end = f" {outcome.ending.value}: this is the best so far." if is_early else ""
    cost = f"{problem.deadline.elapsed:.3g} s" + (f" and {passes:.3g} passes" if passes else "")
    return f"{how} in {cost}.{end}{f' {outcome.choice}' if outcome.choice else ''}"
