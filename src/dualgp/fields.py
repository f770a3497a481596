"""From data to a posterior: far weights for all rows or for some, and the residual of every row for the near field."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import bound_programs, on_device
from dualgp._checks import check_key
from dualgp._random import generator, subkey
from dualgp._types import Columns, RandomKey
from dualgp.budget import choose_num_far, over_rows
from dualgp.operators import KernelOperator, policy
from dualgp.operators.cross import CrossProduct, evaluate
from dualgp.operators.layout import Local
from dualgp.operators.merging import GivenRows
from dualgp.posterior import AllRows, ExactPosterior, Posterior, SampledPosterior
from dualgp.posterior.prior import PriorPaths, draw_targets
from dualgp.solvers import BlockDescent, Cholesky, DivergenceWarning, Result, Solution, Solver
from dualgp.solvers.base import Run, Trace
from dualgp.solvers.residual import column_norms, norms, residual_of
from dualgp.solvers.solve import solve_run
from dualgp.solvers.validation import Score, Validation, keep_rows_aside
from dualgp.updates import Known

if TYPE_CHECKING:
    from dualgp.gp import GaussianProcess


@dataclass(frozen=True, eq=False)
class Data:
    """All rows: their operator, the k targets of the rows of this process, and how functions are drawn.

    `sizes`: the numbers of neighbours that the near field may have; empty without a near field. `given`: the rows
    before those with equal inputs were merged.
    """

    model: GaussianProcess
    operator: KernelOperator
    y: Float[np.ndarray, "own k"]
    prior: PriorPaths | None
    draw_key: np.ndarray | None
    sizes: tuple[int, ...]
    given: GivenRows | None = None

    @property
    def num_outputs(self) -> int:
        """How many means there are."""
        return self.y.shape[1]

    @property
    def num_columns(self) -> int:
        """The means' columns and one for each function."""
        return self.num_outputs + (0 if self.prior is None else self.prior.weights.shape[1])

    def targets(self, known: Known | None = None) -> Columns:
        """y - mean, then phi(X) @ w + epsilon for each function, in the layout; known rows are not drawn again."""
        layout, dtype = self.operator.layout, self.operator.dtype
        if known is not None and known.targets.shape[1] == self.num_columns:
            return layout.place(known.targets, dtype)
        columns = np.empty((len(self.y), self.num_columns), dtype)
        columns[:, : self.num_outputs] = self.y - np.asarray(self.model.mean)
        if self.prior is not None and self.draw_key is not None:
            own = layout.read_own(self.operator.x)
            noise = self.operator.noise
            columns[:, self.num_outputs :] = draw_targets(
                self.prior, self.model.kernel, noise, self.draw_key, own, layout.n, layout.own
            )
        return layout.place_own(columns)

    def posterior(self, far: CrossProduct, targets: Columns, solution: Solution, **more: Any) -> SampledPosterior:
        """The posterior with this far field."""
        return SampledPosterior(self.model, far, targets, self.prior, solution, **self.known, **more)

    @property
    def known(self) -> dict[str, Any]:
        """The fields about the rows that every posterior has."""
        noise = None if self.operator.noise.is_uniform else self.operator.noise
        return {"dtype": str(self.operator.x.dtype), "draw_key": self.draw_key, "noise": noise, "given": self.given}


def condition(
    data: Data, solver: Solver, run: Run, num_far: int | None = None, known: Known | None = None
) -> Posterior:
    """The posterior given the data. `num_far`: how many rows get far weights; None leaves it to the budget."""
    bound_programs()
    n, validation, alone = data.operator.n, None, None
    if data.sizes and solver.stops_by_validation(n):
        key = subkey(check_key(run.key, "Keeping rows aside"), "validation")
        validation = keep_rows_aside(data.operator, data.sizes, key, data.num_outputs)
        alone = _score_neighbours(data, validation)
    if num_far is None:
        fewest = 0 if known is None else len(known.places)
        num_far = choose_num_far(data.operator, data.prior, solver, run, fewest, or_none=bool(data.sizes))
        if 0 < num_far < n and alone is not None and known is None and not _is_far_worthwhile(data, validation, alone):
            num_far = 0
    if num_far == 0:
        return _neighbours_alone(data, run, alone)
    if num_far == n:
        return _solve_all(data, solver, replace(run, validation=validation), known)
    return _solve_some(data, solver, run, num_far, validation, known)


def _solve_all(data: Data, solver: Solver, run: Run, known: Known | None) -> Posterior:
    """Far weights for all rows."""
    operator = data.operator
    targets = data.targets(known)
    if known is not None:
        start, residual = known.start(operator.dtype)
        run = replace(run, start=start, start_residual=residual)
    solution = _solve(operator, targets, solver, run)
    if solution.factor is not None:
        return _exact(data, targets, solution)
    score = solution.validation
    if score is not None and score.is_alone:
        return _without_far(data, targets, solution, score)
    residuals = None
    if data.sizes:
        kept = solution.residuals
        residuals = residual_of(operator, targets, solution.weights) if kept is None else kept
    far = operator.cross(solution.weights)
    return data.posterior(far, targets, solution, residuals=residuals, neighbours=_best_size(data.sizes, score))


def _solve_some(
    data: Data, solver: Solver, run: Run, num_far: int, validation: Validation | None, known: Known | None
) -> Posterior:
    """Far weights for a random subset G, then one product for the residuals of all rows."""
    operator, layout, n = data.operator, data.operator.layout, data.operator.n
    aside = np.zeros(0, np.int32) if validation is None else validation.rows
    places = _choose(n, num_far, np.zeros(0, np.int32) if known is None else known.places, aside, run.key)
    targets, solved = data.targets(known), operator.subset(places)
    on_host = layout.collect(targets)
    place = lambda columns: solved.layout.place(columns, solved.dtype)  # noqa: E731
    run = over_rows(run, num_far, n)
    if known is not None:
        start, residual = (None if array is None else place(array[places]) for array in known.start(solved.dtype))
        run = replace(run, start=start, start_residual=residual)
    solution = _solve(solved, place(on_host[places]), solver, replace(run, validation=None))
    weights = layout.collect(solution.weights) if solved.layout.mesh is not None else solution.weights
    far = solved.cross(solution.weights)
    residuals = on_host - evaluate(far, layout.collect(operator.x), operator.x, data.model.kernel)
    noise = np.asarray(operator.noise.diagonal(places, residuals.dtype))[:, None]
    residuals[places] -= noise * np.asarray(weights)[: len(places)]
    all_rows = AllRows(operator.x, places, layout)
    score, kept = None, layout.place(residuals, operator.dtype)
    if validation is not None:
        alone = validation.errors(targets, layout.read_rows)
        score = validation.score(alone, validation.errors(kept, layout.read_rows))
    solution = over_all_rows(solution, residuals, on_host, num_far, score)
    if score is not None and score.is_alone:
        return _without_far(data, targets, solution, score)
    more = {"residuals": kept, "neighbours": _best_size(data.sizes, score), "all_rows": all_rows}
    return data.posterior(far, targets, solution, **more)


def _neighbours_alone(data: Data, run: Run, score: Score | None) -> Posterior:
    """A posterior without far field: nothing is solved, and functions are drawn at the data on first use."""
    targets = replace(data, prior=None).targets()
    ones, seconds = np.ones(data.num_columns), run.seconds
    solution = Solution(
        weights=np.zeros((0, data.num_columns), data.operator.dtype),
        result=Result.CONVERGED,
        message=f"No far field: predictions by the {_best_size(data.sizes, score)} nearest rows.",
        residual=ones,
        residual_upper=ones,
        steps=0,
        passes=0.0,
        seconds=seconds,
        solver=BlockDescent(),
        trace=Trace(np.zeros(0, int), np.zeros(0), np.zeros(0), np.zeros((0, data.num_columns))),
        validation=score,
    )
    return _without_far(data, targets, solution, score)


def _without_far(data: Data, targets: Columns, solution: Solution, score: Score | None) -> SampledPosterior:
    """The posterior by neighbours alone."""
    operator = data.operator
    nothing = np.zeros((0, operator.x.shape[1]), operator.x.dtype)
    weights = on_device(np.zeros((0, data.num_columns)), operator.dtype)
    far = CrossProduct(data.model.kernel, on_device(nothing, nothing.dtype), weights, Local(0))
    all_rows = AllRows(operator.x, np.zeros(0, np.int32), operator.layout)
    solution = replace(solution, weights=weights, residuals=None, state=None)
    return data.posterior(far, targets, solution, neighbours=_best_size(data.sizes, score), all_rows=all_rows)


def _exact(data: Data, targets: Columns, solution: Solution) -> ExactPosterior:
    """The posterior of an exact solution. It predicts in float64: with little noise float32 would lose the accuracy."""
    operator, kernel = data.operator, data.model.kernel
    x, targets = (operator.layout.collect(array) for array in (operator.x, targets))
    targets, weights = (on_device(array, np.float64) for array in (targets, solution.weights))
    far = CrossProduct(kernel, kernel.stored(x, np.float64), weights, Local(operator.n))
    return ExactPosterior(data.model, far, targets, data.prior, solution, **data.known)


def _solve(operator: KernelOperator, targets: Columns, solver: Solver, run: Run) -> Solution:
    run = replace(run, key=None if run.key is None else subkey(run.key, "solve"))
    solution = solve_run(operator, targets, solver, run)
    if solution.result is Result.DIVERGED:
        warnings.warn(solution.message, DivergenceWarning, stacklevel=7)
    return solution


def over_all_rows(
    solution: Solution, residuals: Float[np.ndarray, "n s"], targets: Float[np.ndarray, "n s"], num_far: int, score: Any
) -> Solution:
    """A solution for some rows, with the residual of all of them, which is known."""
    n = len(targets)
    residual = norms(residuals) / column_norms(targets)
    message = f"Far weights for {num_far:,} random rows of {n:,}, the near field for all. {solution.message}"
    passes = solution.passes * (num_far / n) ** 2 + num_far / n
    found: dict[str, Any] = {"residual": residual, "residual_upper": residual, "validation": score}
    found |= {"residuals": None, "factor": None, "state": None}
    return replace(solution, message=message, passes=passes, **found)


def _score_neighbours(data: Data, validation: Validation) -> Score:
    """How well neighbours alone predict the rows kept aside."""
    own = replace(data, prior=None).targets()
    return validation.score(validation.errors(own, data.operator.layout.read_rows))


def _is_far_worthwhile(data: Data, validation: Validation | None, alone: Score) -> bool:
    """Whether a trial far field, of few rows and for the mean alone, improves the score."""
    if validation is None:
        return True
    operator, layout = data.operator, data.operator.layout
    y = layout.collect(replace(data, prior=None).targets())
    others = np.setdiff1d(np.arange(operator.n, dtype=np.int32), validation.rows)
    places = others[:: max(1, len(others) // policy.FAR_TRIAL)][: policy.FAR_TRIAL]
    trial = operator.subset(places)
    weights = Cholesky().run(trial, trial.layout.place(y[places], trial.dtype), Run(None)).weights
    needed = validation.needed_rows()
    x = layout.read_rows(operator.x, needed)
    residuals = np.zeros_like(y)
    far = trial.cross(trial.layout.place(np.asarray(weights)[: len(places)], trial.dtype))
    residuals[needed] = y[needed] - evaluate(far, x, operator.x, data.model.kernel)
    noise = np.asarray(operator.noise.diagonal(places, residuals.dtype))[:, None]
    residuals[places] -= noise * np.asarray(weights)[: len(places)]
    read = lambda columns, rows: columns[rows]  # noqa: E731
    both = validation.score(validation.errors(y, read), validation.errors(residuals, read))
    return not both.is_alone and both.improves_on(alone, 0.5)


def _choose(
    n: int, num_far: int, known: Int[np.ndarray, " known"], aside: Int[np.ndarray, " aside"], key: RandomKey | None
) -> Int[np.ndarray, " chosen"]:
    """These rows and random others that are not kept aside: `num_far` rows, in the order of the data."""
    others = np.setdiff1d(np.arange(n, dtype=np.int32), np.concatenate([known, aside]))
    num = min(num_far - len(known), len(others))
    some = generator(subkey(check_key(key, "Choosing rows"), "subset")).choice(others, num, replace=False)
    return np.sort(np.concatenate([known, some])).astype(np.int32)


def _best_size(sizes: tuple[int, ...], score: Score | None) -> int:
    if score is not None:
        return score.neighbours
    return policy.DEFAULT_NEIGHBOURS if len(sizes) > 1 else sum(sizes)
