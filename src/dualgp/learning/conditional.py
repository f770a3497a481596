"""The likelihood of blocks given other rows, and its gradient in closed form, in float64.

With A the covariance of a block's rows (given ones g first, own ones b last), L its Cholesky factor,
z = L^-1 (y - mean) and V the last rows of L^-1 (those of b),

    log p(y_b | y_g)  =  -1/2 |z_b|^2 - sum log diag L_bb - n_b/2 log 2 pi
    d/dA  =  1/2 (alpha alpha^T - alpha_g alpha_g^T - V^T V),   alpha = alpha_g + V^T z_b,   A_gg alpha_g = y_g - mean

summed over outputs, which costs one factorisation, one triangular solve of n_b rows and a matrix product. The kernel
pulls it back to its parameters. Reverse mode through the factorisation takes three times as long.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dualgp._arrays import in_wide
from dualgp._types import AnyArray, Points
from dualgp.learning.blocks import Blocks
from dualgp.learning.likelihood import NotDefinite
from dualgp.learning.parameters import Parameters, Vector
from dualgp.learning.rows import RowNoise


@in_wide
def likelihood_and_gradient(parameters: Parameters, vector: Vector, blocks: Blocks) -> tuple[float, Vector]:
    """The sum of log p(block | rows given to it) over the blocks, and its derivatives in the vector."""
    value, gradient = _sum(parameters, jnp.asarray(vector), _arrays(blocks), blocks.own)
    return _checked(value, blocks), np.asarray(gradient)


@in_wide
def likelihood(parameters: Parameters, vector: Vector, blocks: Blocks, most_deviations: float = math.inf) -> float:
    """The value alone, in a third of the time. A row counts as at most so many standard deviations off."""
    largest = jnp.asarray(most_deviations)
    return _checked(_value(parameters, jnp.asarray(vector), _arrays(blocks), blocks.own, largest), blocks)


def _arrays(blocks: Blocks) -> Any:
    """Inputs, targets, mask and noise."""
    return jax.tree.map(jnp.asarray, (blocks.x, blocks.y, blocks.mask, blocks.terms))


def _checked(value: Any, blocks: Blocks) -> float:
    if not math.isfinite(value):
        raise NotDefinite
    return float(value) - 0.5 * blocks.num_rows * blocks.y.shape[2] * math.log(2 * math.pi)


@eqx.filter_jit
def _sum(parameters: Parameters, vector: AnyArray, blocks: Any, own: int) -> tuple[Array, Array]:
    """Value and gradient, one block after another, so that the data of a block stay in the cache."""

    def add(total: tuple[Array, Array], block: Any) -> tuple[tuple[Array, Array], None]:
        moments, pull = jax.vjp(lambda vector: _moments(parameters, vector, own, *block), vector)
        matrix, deviation, log_repeats = moments
        value, *slopes = _density(matrix, deviation, own)
        gradient = pull((*slopes, jnp.ones_like(log_repeats)))[0]
        return (total[0] + value + log_repeats, total[1] + gradient), None

    return jax.lax.scan(add, (jnp.zeros((), vector.dtype), jnp.zeros_like(vector)), blocks)[0]


@eqx.filter_jit
def _value(parameters: Parameters, vector: AnyArray, blocks: Any, own: int, largest: Array) -> Array:
    def add(total: Array, block: Any) -> tuple[Array, None]:
        *moments, log_repeats = _moments(parameters, vector, own, *block)
        factor, whitened = _whiten(*moments)
        bounded = jnp.clip(whitened, -largest, largest)
        return total + _log_density(factor, bounded, own) + log_repeats, None

    return jax.lax.scan(add, jnp.zeros((), vector.dtype), blocks)[0]


def _moments(
    parameters: Parameters,
    vector: AnyArray,
    own: int,
    x: Points,
    y: Float[Array, "m k"],
    mask: Bool[Array, " m"],
    terms: RowNoise | None,
) -> tuple[Float[Array, "m m"], Float[Array, "m k"], Array]:
    """Covariance of a block's rows, y - mean, and the further term of merged rows.

    Masked rows are independent of all others, and zero.
    """
    model, x = parameters.model(vector), x.astype(y.dtype)
    noise = jnp.broadcast_to(model.noise, mask.shape) if terms is None else terms.variance(model.noise)
    matrix = jnp.where(mask[:, None] & mask, model.kernel(x, x), 0.0) + jnp.diag(jnp.where(mask, noise, 1.0))
    log_repeats = jnp.zeros((), y.dtype) if terms is None else terms.last(own).log_repeats(model.noise)
    return matrix, jnp.where(mask[:, None], y - model.mean, 0.0), log_repeats


def _whiten(matrix: Float[Array, "m m"], deviation: Float[Array, "m k"]) -> tuple[Array, Array]:
    factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    return factor, _solve(factor, deviation)


def _solve(factor: Array, right: Array, **settings: Any) -> Array:
    settings = {"left_side": True, "lower": True, **settings}
    return jax.lax.linalg.triangular_solve(factor, right, **settings)


def _log_density(factor: Float[Array, "m m"], whitened: Float[Array, "m k"], own: int) -> Float[Array, ""]:
    """The log density without its constant."""
    half_log_det = jnp.sum(jnp.log(jnp.diagonal(factor)[-own:]))
    return -0.5 * jnp.sum(whitened[-own:] ** 2) - whitened.shape[1] * half_log_det


def _density(matrix: Float[Array, "m m"], deviation: Float[Array, "m k"], own: int) -> tuple[Array, Array, Array]:
    """Log density of the own rows given the others, and its derivatives in `matrix` and `deviation`."""
    factor, whitened = _whiten(matrix, deviation)
    given, last = len(deviation) - own, whitened[-own:]
    inverse = _solve(factor[given:, given:], jnp.eye(own, dtype=matrix.dtype))
    across = jnp.concatenate([-inverse @ factor[given:, :given], whitened[:given].T])
    across = _solve(factor[:given, :given], across, left_side=False)
    rows = jnp.concatenate([across[:own], inverse], axis=1)  # V
    alpha = jnp.concatenate([across[own:], jnp.zeros_like(last.T)], axis=1)
    change = last.T @ rows
    middle = alpha + 0.5 * change  # alpha alpha^T - alpha_g alpha_g^T = middle change^T + change middle^T
    left = jnp.concatenate([-last.shape[1] * rows, middle, change])
    slope = 0.5 * left.T @ jnp.concatenate([rows, change, middle])
    return _log_density(factor, whitened, own), slope, -change.T
