"""The pathwise gradient of the log marginal likelihood of all rows (Lin et al. 2024).

With v_y = A^-1 (y - mean) and v_s = A^-1 (phi(X) w_s + epsilon_s), whose covariance is A^-1,

    d/du log p(y)  =  1/2 v_y^T A' v_y - 1/2 tr(A^-1 A')  =  1/2 v_y^T A' v_y - 1/2 E_s[v_s^T A' v_s]

These are the weights of the posterior's mean and samples: one solve gives the gradient and the posterior.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import compiled, in_wide
from dualgp._types import AnyArray, Columns
from dualgp.learning.parameters import Parameters, Vector
from dualgp.learning.rows import RowNoise
from dualgp.operators import KernelOperator
from dualgp.posterior import Posterior

TILE = 512  # rows and columns of K at a time: 1 MB in float32
TILES_AT_ONCE = 64  # in a compiled call: 0.06 s with 9 inputs, 0.6 s with 90 inputs and care (2 cores)


@in_wide
def pathwise_gradient(
    parameters: Parameters,
    vector: Vector,
    posterior: Posterior,
    terms: RowNoise | None = None,
    check_time: Callable[[], Any] = lambda: None,
) -> Vector:
    """The gradient of the log likelihood from a posterior's weights. `check_time` is called every now and then."""
    operator, weights = _operator(parameters, vector, posterior.x), jnp.asarray(posterior.weights)
    k = posterior.num_outputs
    x_tiles, v_tiles = _tiles(operator.x), _tiles(weights, 0.0)
    point, share = jnp.asarray(vector), _shares(weights, k)
    gradient = np.asarray(_noise_and_mean_gradient(parameters, point, weights, share, terms, k))
    for row in range(len(x_tiles)):
        for column in range(row, len(x_tiles), TILES_AT_ONCE):
            check_time()
            arguments = parameters, point, x_tiles, v_tiles, share, jnp.asarray([row, column]), operator.careful
            gradient = gradient + np.asarray(_kernel_gradient(*arguments))
    return gradient


@in_wide
def measure_seconds(parameters: Parameters, vector: Vector, x: np.ndarray, num_columns: int) -> float:
    """The seconds of a gradient, extrapolated from some tiles."""
    operator = _operator(parameters, vector, x, np.float32)
    tiles = _tiles(operator.x)
    v = jnp.zeros((*tiles.shape[:2], num_columns), jnp.float32)
    arguments = parameters, jnp.asarray(vector), tiles, v, _shares(v[0], 1), jnp.asarray([0, 0]), operator.careful
    jax.block_until_ready(_kernel_gradient(*arguments))  # compiles
    began = time.perf_counter()
    jax.block_until_ready(_kernel_gradient(*arguments))
    seconds, num = time.perf_counter() - began, len(tiles)
    return seconds / min(num, TILES_AT_ONCE) * num * (num + 1) / 2


def _operator(parameters: Parameters, vector: Vector, x: AnyArray, dtype: Any = None) -> KernelOperator:
    """The operator of a solve, which decides whether distances need care."""
    model = parameters.model(vector)
    return KernelOperator(model.kernel, x, model.noise, memory=0, dtype=dtype)


def _tiles(rows: AnyArray, filler: float | None = None) -> Float[Array, "tiles size columns"]:
    """Rows in tiles; without a filler the last tile is padded with a real point, zeros could be far away."""
    padding = (-len(rows) % TILE, rows.shape[1])
    more = jnp.broadcast_to(rows[:1] if filler is None else jnp.asarray(filler, rows.dtype), padding)
    return jnp.concatenate([rows, more]).reshape(-1, TILE, rows.shape[1])


def _shares(weights: Columns, k: int) -> Float[Array, " s"]:
    """The weight of each column in the gradient: 1/2 for each of k means, -k/2 for all samples together."""
    return jnp.full(weights.shape[1], -0.5 * k / (weights.shape[1] - k), weights.dtype).at[:k].set(0.5)


@compiled
def _kernel_gradient(
    parameters: Parameters,
    vector: AnyArray,
    x: Float[Array, "tiles size d"],
    v: Float[Array, "tiles size s"],
    share: Float[Array, " s"],
    place: Int[Array, " 2"],
    careful: bool,
) -> Float[Array, " free"]:
    """d/du of sum_s share_s v_s^T K v_s: TILES_AT_ONCE tiles of a row from a column on, and their mirror images."""
    row, first = place

    def add(column: Array, total: Float[Array, " free"]) -> Float[Array, " free"]:
        block = lambda vector: parameters.model(vector).kernel.against(x[row], x[column], careful)(x[column])  # noqa: E731
        times = jnp.where(column == row, 1.0, 2.0).astype(v.dtype)
        _, pull_back = jax.vjp(block, vector)
        return total + pull_back(times * (v[row] * share) @ v[column].T)[0]

    last = jnp.minimum(first + TILES_AT_ONCE, x.shape[0])
    return jax.lax.fori_loop(first, last, add, jnp.zeros_like(vector))


@eqx.filter_jit
def _noise_and_mean_gradient(
    parameters: Parameters, vector: AnyArray, v: Columns, share: Float[Array, " s"], terms: RowNoise | None, k: int
) -> Float[Array, " free"]:
    """d/du of sum_i variance_i sum_s share_s v_is^2 + mean^T (1^T v_y), and the further term of merged rows."""
    wide = v.astype(vector.dtype)
    by_row, by_mean = jnp.sum(share * wide**2, axis=1), jnp.sum(wide[:, :k], axis=0)

    def value(vector: AnyArray) -> Array:
        model = parameters.model(vector)
        mean = jnp.sum(by_mean * model.mean)
        if terms is None:
            return jnp.sum(by_row) * model.noise + mean
        return jnp.sum(by_row * terms.variance(model.noise)) + terms.log_repeats(model.noise) + mean

    return jax.grad(value)(vector)
