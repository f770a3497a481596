"""How a run ended, as a sentence with a remedy."""

import math

from dualgp._types import RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import Prepared, Result
from dualgp.solvers.progress import Progress
from dualgp.solvers.validation import Score


def describe(
    result: Result,
    prepared: Prepared,
    operator: Operator,
    progress: Progress,
    residual: float,
    key: RandomKey,
    score: Score | None = None,
) -> str:
    """How a run ended at this relative residual. `key`: randomness to find out why it diverged.

    `score`: that of the rows kept aside, if the run stops by their predictions.
    """
    name, steps = type(prepared.settings).__name__, progress.step
    reached = f"relative residual {residual:.2g}"
    asked = f"{reached}, asked for {prepared.tol:.2g}"
    slowed = f" It started again more carefully {progress.slowdowns} time(s) on the way." if progress.slowdowns else ""
    if result is Result.CONVERGED and score is not None:
        return (
            f"{name} converged after {progress.passes:.2g} passes, at {reached}: another pass would hardly improve "
            f"predictions of {score.rows:,} rows kept aside.{slowed}"
        )
    if result is Result.CONVERGED:
        return f"{name} converged: {asked}.{slowed}"
    if result is Result.DIVERGED:
        return f"{name} diverged at step {steps} ({_growth(progress)}): {prepared.explain_divergence(operator, key)}"
    if result is Result.STALLED:
        remedy = "Pass dtype='float64'" if operator.dtype.itemsize < 8 else "Raise the noise"
        return (
            f"{name} stalled after {steps} steps at {asked}: with so little noise ({operator.noise.smallest:.2g}), "
            f"{operator.dtype} goes no further. {remedy}, or accept it."
        )
    if result is Result.BUDGET_REACHED and prepared.tol == 0:
        return f"{name} took all of its {steps} steps: {reached}."
    why = "was interrupted" if result is Result.INTERRUPTED else "used up its budget"
    return f"{name} {why} after {steps} steps at {asked}. {prepared.rules.if_unfinished}{slowed}"


def _growth(progress: Progress) -> str:
    growth = max(progress.trace[-1][3])
    return f"residual {growth:.0e} times that of zero weights" if math.isfinite(growth) else "values not finite"
