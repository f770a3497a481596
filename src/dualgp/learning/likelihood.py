"""The exact log marginal likelihood of a group of rows and its gradient, in float64.

    log p(y) = -1/2 alpha^T (y - mean) - 1/2 log det A - n/2 log 2 pi,     A = K + diag(noise),  alpha = A^-1 (y - mean)
    d/du     = 1/2 alpha^T A' alpha - 1/2 tr(A^-1 A')                        (and 1^T alpha for the mean)

summed over outputs. One group of all rows is the likelihood of a Gaussian process; many neighbourhoods are a composite
likelihood, whose gradient is zero on average at the true parameters too, at a cost of n * size^2 instead of n^3.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import lapack

from dualgp._arrays import in_wide, wide
from dualgp._checks import as_columns, check_outputs, check_points
from dualgp._types import AnyArray, Points
from dualgp.gp import GaussianProcess
from dualgp.learning.parameters import Parameters, Vector
from dualgp.learning.rows import RowNoise
from dualgp.operators import policy


class Group(NamedTuple):
    """Some rows of the data, in float64; their noise, if it is not the model's.

    `x` and `terms` have more rows than `y`, so that few sizes are compiled: those beyond say nothing.
    """

    x: Float[AnyArray, "padded d"]
    y: Float[np.ndarray, "m k"]
    terms: RowNoise | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.y)


class NotDefinite(ArithmeticError):
    """A covariance matrix has no Cholesky factor."""


def log_likelihood(model: GaussianProcess, x: Any, y: Any) -> float:
    """log N(y; mean, K + noise I), exact: n^3 / 3 operations and 8 n^2 bytes. Several outputs add up."""
    parameters = Parameters(model)
    return _factorise(parameters, parameters.start, as_group(model.kernel.points(x), y))[0]


def as_group(x: Any, y: Any, terms: RowNoise | None = None) -> Group:
    """All rows as one group."""
    x = check_points(x)
    y = as_columns(check_outputs(y, x.shape[0]))
    rows = np.arange(policy.padded(len(y)))
    index, mask = np.minimum(rows, len(y) - 1), rows < len(y)
    with wide():
        return Group(jnp.asarray(x[index], jnp.float64), y, None if terms is None else terms.take(index, mask))


@in_wide
def likelihood_and_gradient(parameters: Parameters, vector: Vector, group: Group) -> tuple[float, Vector]:
    """The log likelihood of a group, and its derivatives in the vector."""
    value, factor, alpha = _factorise(parameters, vector, group)
    m, sums = len(alpha), alpha.sum(axis=0)
    weight = np.zeros((len(group.x), len(group.x)))
    weight[:m, :m] = 0.5 * (alpha @ alpha.T - alpha.shape[1] * _invert(factor))
    return value, np.asarray(_pull_back(parameters, jnp.asarray(vector), group.x, group.terms, weight, sums))


def information(parameters: Parameters, vector: Vector, group: Group) -> Float[np.ndarray, "free free"]:
    """Fisher's information of a group: F_ij = 1/2 tr(A^-1 A_i A^-1 A_j) + mean_i 1^T A^-1 1 mean_j for each output."""
    inverse, k = _invert(_factorise(parameters, vector, group)[1]), group.y.shape[1]
    with wide():
        derivatives = _derivatives(parameters, jnp.asarray(vector), group.x, group.terms)[:2]
        covariance, mean = map(np.asarray, derivatives)
    mean = np.broadcast_to(mean.reshape(len(mean), -1), (len(mean), k))
    covariance = covariance[:, : len(inverse), : len(inverse)]
    products = np.einsum("ij,pjk->pik", inverse, covariance, optimize=True)
    traces = np.einsum("pij,qji->pq", products, products, optimize=True)
    return 0.5 * k * traces + inverse.sum() * mean @ mean.T


@in_wide
def _factorise(
    parameters: Parameters, vector: Vector, group: Group
) -> tuple[float, Float[np.ndarray, "m m"], Float[np.ndarray, "m k"]]:
    """Log likelihood, Cholesky factor (lower) and alpha."""
    covariance, mean, log_repeats = _moments(parameters, jnp.asarray(vector), group.x, group.terms)
    m = len(group.y)
    matrix = np.array(np.asarray(covariance)[:m, :m], order="F")
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if failed or not np.isfinite(factor.diagonal()).all():
        raise NotDefinite
    deviation = group.y - np.asarray(mean)
    alpha, _ = lapack.dpotrs(factor, deviation, lower=1)
    half_log_det = np.log(factor.diagonal()).sum()
    value = -0.5 * np.sum(deviation * alpha) - 0.5 * group.y.size * math.log(2 * math.pi)
    return float(value - group.y.shape[1] * half_log_det + log_repeats), factor, alpha


def _invert(factor: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """A^-1 from the Cholesky factor of A, computed in place."""
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.tril(inverse) + np.tril(inverse, -1).T


@eqx.filter_jit
def _moments(
    parameters: Parameters, vector: AnyArray, x: Points, terms: RowNoise | None
) -> tuple[Float[Array, "m m"], Float[Array, "*k"], Any]:
    """Covariance, means, and the further term of merged rows."""
    model = parameters.model(vector)
    noise = jnp.broadcast_to(model.noise, x.shape[:1]) if terms is None else terms.variance(model.noise)
    log_repeats = jnp.zeros(()) if terms is None else terms.log_repeats(model.noise)
    return model.kernel(x, x) + jnp.diag(noise), jnp.asarray(model.mean), log_repeats


@eqx.filter_jit
def _pull_back(
    parameters: Parameters,
    vector: AnyArray,
    x: Points,
    terms: RowNoise | None,
    weight: Float[AnyArray, "m m"],
    mean_weight: Float[AnyArray, " k"],
) -> Float[Array, " free"]:
    (_, mean, log_repeats), pull = jax.vjp(lambda vector: _moments(parameters, vector, x, terms), vector)
    by_mean = jnp.asarray(mean_weight) if mean.ndim else jnp.sum(mean_weight)
    return pull((jnp.asarray(weight), by_mean, jnp.ones_like(log_repeats)))[0]


@eqx.filter_jit
def _derivatives(
    parameters: Parameters, vector: AnyArray, x: Points, terms: RowNoise | None
) -> tuple[Array, Array, Array]:
    derivatives = jax.jacfwd(lambda vector: _moments(parameters, vector, x, terms))(vector)
    return jax.tree.map(lambda derivative: jnp.moveaxis(derivative, -1, 0), derivatives)
