"""The residual of weights, estimated on rows that the solver did not choose."""

import math
from statistics import NormalDist
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import compiled, in_wide, is_here
from dualgp._random import generator
from dualgp._types import Columns, RandomKey
from dualgp.operators import Operator

FRESH_ROWS = 2048  # 2 % of a pass for 100,000 rows, and a standard error of 2 % for a Gaussian residual
KEPT_ROWS = 256  # to estimate the rounding error of a residual that is kept: it is about equal in all rows
DOUBT = 0.05  # the probability that the upper limit of any of a run's checks is too low
MOST_DRIFT = 0.1  # relative to the residual: with more rounding, a residual that a solver keeps is not trusted


class Residual(NamedTuple):
    """The result of a check for each column, relative to ||b||: the residual and its upper limit.

    Convergence is decided by `judged`, two standard errors above the estimate. The upper limit is larger, because a
    few rows may have much of a residual. `passes` is the cost of the check. `rows` is b - A @ weights if it is known:
    every row was checked, or the solver keeps it and the check confirmed it.
    """

    estimate: np.ndarray
    judged: np.ndarray
    upper: np.ndarray
    passes: float
    rows: Columns | None


def passes_of_check(n: int) -> float:
    """The cost of a check."""
    return min(n, FRESH_ROWS) / n


def check_residual(
    operator: Operator, b: Columns, weights: Columns, key: RandomKey, number: int = 0, kept: Columns | None = None
) -> Residual:
    """||b - A @ weights|| / ||b|| from FRESH_ROWS random rows, or from all where there are no more rows than that.

    The mean of n r_i^2 over the rows is unbiased for ||r||^2; see `upper_limit_of_mean` and `rounding_error`. `number`
    counts the checks of a run, from 0: a run that is checked until it passes may pass by chance, so the k-th limit is
    too low with a probability of 0.05 * 6 / (pi (k + 1))^2, and any of them with 5 %. If a few rows have most of the
    residual, a sample may miss all of them, and no limit from a sample holds.

    `kept`: the residual of all rows that a solver keeps. Then only its rounding error is unknown, and KEPT_ROWS rows
    estimate it: ||r|| <= ||kept|| + ||r - kept||. If that is not small relative to r, `kept` is not used.
    """
    n = operator.n
    num = min(n, FRESH_ROWS if kept is None or n <= FRESH_ROWS else KEPT_ROWS)
    index = np.arange(n) if num == n else generator(key).choice(n, num, replace=False)
    rows = -operator.check_rows(index.astype(np.int32), weights, b)
    known, errors = np.zeros(b.shape[1]), rows
    if kept is not None and num < n:
        known, errors = norms(kept), rows - operator.layout.read_rows(kept, index.astype(np.int32))
        if np.linalg.norm(errors) > MOST_DRIFT * np.linalg.norm(rows):
            found = check_residual(operator, b, weights, key, number)
            return found._replace(passes=found.passes + num / n)
    squares = errors.astype(np.float64) ** 2
    largest = upper_limit_of_mean(squares, n, DOUBT * 6.0 / (math.pi * (number + 1)) ** 2)
    mean, error = squares.mean(axis=0), squares.std(axis=0) * math.sqrt((1.0 - num / n) / num)
    unknown = (np.sqrt(n * square) for square in (0.0 * mean if known.any() else mean, mean + 2.0 * error, largest))
    estimate, judged, upper = ((known + size) / column_norms(b) for size in unknown)
    upper = upper + rounding_error(operator, b, weights)
    whole = operator.layout.place(rows, operator.dtype) if num == n else kept if known.any() else None
    return Residual(estimate, judged, upper, num / n, whole)


def upper_limit_of_mean(values: Float[np.ndarray, "m s"], n: int, doubt: float) -> Float[np.ndarray, " s"]:
    """A limit that the mean of n squares exceeds with probability `doubt`, from m that were drawn without replacement.

    The logarithm of the mean is nearly normal; its quantile has Johnson's correction for skewness. A sample without
    the largest squares underestimates both mean and standard deviation, so that the largest drawn square counts
    twice. With `doubt` 3 % and m = 100 the limit is too low for 1 % of samples from normal residuals, 2 % from
    Laplace, 3 % from Student's t with 5 degrees of freedom, and 9 % with 3: there it fails.
    """
    if len(values) < n:
        values = np.concatenate([values, values.max(axis=0, keepdims=True)])
    m, mean, deviation = len(values), values.mean(axis=0), values.std(axis=0)
    z = NormalDist().inv_cdf(1.0 - doubt)
    skewness = ((values - mean) ** 3).mean(axis=0) / np.where(deviation > 0, deviation, 1.0) ** 3
    quantile = z + skewness * (1.0 + 2.0 * z**2) / (6.0 * math.sqrt(m))
    error = deviation * math.sqrt((1.0 - m / n) / m) / np.where(mean > 0, mean, 1.0)
    return mean * np.exp(quantile * error)


def rounding_error(operator: Operator, b: Columns, weights: Columns) -> Float[np.ndarray, " s"]:
    """The error of a computed residual relative to ||b||: eps (sqrt(n) kappa ||w|| + noise ||w|| + ||b||) / ||b||.

    Every entry of K is rounded, by about eps times kappa, its largest entry, and more where coordinates are large (see
    `Operator.stretch`); errors of n such products with weights add up like independent ones, to eps kappa ||w|| in each
    row and sqrt(n) times that in all rows. The other two terms are the rounding of noise * w and of b. This is a
    typical size and not a bound: errors of equal sign would be sqrt(n) times as large.
    """
    kappa = operator.largest_variance() * math.hypot(1.0, operator.stretch())
    scale = math.sqrt(operator.n) * kappa + operator.noise.largest
    return float(np.finfo(operator.dtype).eps) * (scale * norms(weights) / column_norms(b) + 1.0)


@in_wide
def residual_of(operator: Operator, b: Columns, weights: Columns) -> Columns:
    """b - A @ weights for every row: one pass, or none if all weights are zero."""
    return jnp.asarray(b) if not norms(weights).any() else _subtract_product(operator, b, weights)


@compiled
def _subtract_product(operator: Operator, b: Columns, weights: Columns) -> Columns:
    return b - operator.product(weights)


def column_norms(b: Columns) -> np.ndarray:
    """||b|| for each column; 1 for a column of zeros, whose residual is then absolute."""
    found = norms(b)
    return np.where(found > 0, found, 1.0)


@in_wide
def norms(b: Columns) -> Float[np.ndarray, " s"]:
    """||b|| for each column."""
    if is_here(b):
        return np.sqrt(np.einsum("ij,ij->j", np.asarray(b), np.asarray(b), dtype=np.float64))
    return np.asarray(_norms_on_devices(b))


@eqx.filter_jit
def _norms_on_devices(b: Columns) -> Float[Array, " s"]:
    return jnp.linalg.norm(b.astype(jnp.float64), axis=0)
