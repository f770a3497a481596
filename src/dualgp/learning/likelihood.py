"""The exact log marginal likelihood of a group of rows and its gradient, in float64.

    log p(y) = -1/2 alpha^T (y - mean) - 1/2 log det A - n/2 log 2 pi,        A = K + noise I,  alpha = A^-1 (y - mean)
    d/du     = 1/2 alpha^T A' alpha - 1/2 tr(A^-1 A')                        (and 1^T alpha for the mean)

One group of all rows is the likelihood of a Gaussian process; many neighbourhoods are a composite likelihood, whose
gradient is zero on average at the true parameters too, at a cost of n * size^2 instead of n^3.
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
from dualgp._checks import check_points, check_targets
from dualgp._types import AnyArray, Points
from dualgp.gp import GaussianProcess
from dualgp.learning.parameters import Parameters, Vector


class Group(NamedTuple):
    """Some rows of the data, in float64."""

    x: Float[AnyArray, "m d"]
    y: Float[np.ndarray, " m"]

    @property
    def num_rows(self) -> int:
        """How many."""
        return len(self.y)


class NotDefinite(ArithmeticError):
    """A covariance matrix has no Cholesky factor."""


def log_likelihood(model: GaussianProcess, x: Any, y: Any) -> float:
    """log N(y; mean, K + noise I), exact: n^3 / 3 operations and 8 n^2 bytes."""
    parameters = Parameters(model)
    return _factorise(parameters, parameters.start, as_group(model.kernel.points(x), y))[0]


def as_group(x: Any, y: Any) -> Group:
    """All rows as one group."""
    x = check_points(x)
    with wide():
        return Group(jnp.asarray(x, jnp.float64), np.asarray(check_targets(y, x.shape[0]), np.float64))


@in_wide
def likelihood_and_gradient(parameters: Parameters, vector: Vector, group: Group) -> tuple[float, Vector]:
    """The log likelihood of a group, and its derivatives in the vector."""
    value, factor, alpha = _factorise(parameters, vector, group)
    weight = 0.5 * (np.outer(alpha, alpha) - _invert(factor))
    return value, np.asarray(_pull_back(parameters, jnp.asarray(vector), group.x, weight, alpha.sum()))


def information(parameters: Parameters, vector: Vector, group: Group) -> Float[np.ndarray, "free free"]:
    """Fisher's information of a group: F_ij = 1/2 tr(A^-1 A_i A^-1 A_j) + mean_i 1^T A^-1 1 mean_j."""
    inverse = _invert(_factorise(parameters, vector, group)[1])
    with wide():
        covariance, mean = map(np.asarray, _derivatives(parameters, jnp.asarray(vector), group.x))
    products = np.einsum("ij,pjk->pik", inverse, covariance, optimize=True)
    traces = np.einsum("pij,qji->pq", products, products, optimize=True)
    return 0.5 * traces + inverse.sum() * np.outer(mean, mean)


@in_wide
def _factorise(
    parameters: Parameters, vector: Vector, group: Group
) -> tuple[float, Float[np.ndarray, "m m"], Float[np.ndarray, " m"]]:
    """Log likelihood, Cholesky factor (lower) and alpha."""
    covariance, mean = _moments(parameters, jnp.asarray(vector), group.x)
    matrix = np.array(covariance, order="F")
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if failed or not np.isfinite(factor.diagonal()).all():
        raise NotDefinite
    deviation = group.y - float(mean)
    alpha, _ = lapack.dpotrs(factor, deviation, lower=1)
    half_log_det = np.log(factor.diagonal()).sum()
    value = -0.5 * deviation @ alpha - half_log_det - 0.5 * len(group.y) * math.log(2 * math.pi)
    return float(value), factor, alpha


def _invert(factor: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """A^-1 from the Cholesky factor of A, in its place."""
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.tril(inverse) + np.tril(inverse, -1).T


@eqx.filter_jit
def _moments(parameters: Parameters, vector: AnyArray, x: Points) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
    model = parameters.model(vector)
    return model.kernel(x, x) + model.noise * jnp.eye(x.shape[0], dtype=x.dtype), jnp.asarray(model.mean)


@eqx.filter_jit
def _pull_back(
    parameters: Parameters, vector: AnyArray, x: Points, weight: Float[AnyArray, "m m"], mean_weight: AnyArray
) -> Float[Array, " free"]:
    _, pull = jax.vjp(lambda vector: _moments(parameters, vector, x), vector)
    return pull((jnp.asarray(weight), jnp.asarray(mean_weight)))[0]


@eqx.filter_jit
def _derivatives(parameters: Parameters, vector: AnyArray, x: Points) -> tuple[Array, Array]:
    derivatives = jax.jacfwd(lambda vector: _moments(parameters, vector, x))(vector)
    return jax.tree.map(lambda derivative: jnp.moveaxis(derivative, -1, 0), derivatives)
