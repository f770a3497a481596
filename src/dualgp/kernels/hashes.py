"""Random features of the Tanimoto kernel: signs of consistent weighted samples (Ioffe 2010; Tripp et al. 2023).

A hash draws one element of a weighted set such that two sets draw the same one with probability
sum_c min / sum_c max, their Tanimoto similarity. With a random sign for every element that could be drawn, the product
of two sets' signs is 1 if the hashes agree and 0 on average otherwise: E[phi(x) . phi(x')] = k(x, x').

With r, c ~ Gamma(2, 1) and beta ~ Uniform(0, 1) for each column of each hash,

    t = floor(log(x_c) / r + beta),    log a = log(c) - r (t - beta + 1)

and the hash is the pair (column, t) with the smallest a among columns with x_c > 0. Its sign is a hash of the bits of
t and of the beta of the column. It is stored as the last bit of log a, so that the search carries one number.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from dualgp._arrays import as_parameter
from dualgp._random import generator
from dualgp._types import AnyArray, Parameter, Points, RandomKey
from dualgp.kernels.counts import TOGETHER, as_counts, as_lists
from dualgp.kernels.features import Term

# Rows and hashes of one step: the tables of so many hashes stay in the cache for all rows.
ROWS_AT_ONCE, HASHES_AT_ONCE = 128, 256


class HashFeatures(Term):
    """sqrt(variance * weight) * sign of the hash; weights sum to 1, so phi(x) . phi(x) is the variance."""

    r: Float[AnyArray, "d num"]
    log_c: Float[AnyArray, "d num"]
    beta: Float[AnyArray, "d num"]
    weights: Float[AnyArray, " num"]
    variance: Parameter = eqx.field(converter=as_parameter)

    @property
    def components(self) -> int:
        return 1

    def waves(self, x: Points) -> Float[Array, "m 1 num"]:
        tables = (jnp.asarray(table, jnp.float32) for table in (self.r, self.log_c, self.beta))
        return _all_signs(as_counts(x), *tables)[:, None].astype(jnp.result_type(x.dtype, jnp.float32))

    def scaled(self, scale: AnyArray) -> HashFeatures:
        return HashFeatures(self.r, self.log_c, self.beta, self.weights, scale * self.variance)

    def chosen(self, index: Int[AnyArray, " some"], weights: Float[AnyArray, " some"]) -> HashFeatures:
        r, log_c, beta = (jnp.asarray(table)[:, index] for table in (self.r, self.log_c, self.beta))
        return HashFeatures(r, log_c, beta, weights, self.variance)


def draw_hashes(key: RandomKey, num: int, d: int, variance: AnyArray) -> HashFeatures:
    """`num` independent hashes of d counts."""
    rng = generator(key)
    r, c = (rng.standard_gamma(2.0, (d, num), np.float32) for _ in range(2))
    beta = rng.random((d, num), np.float32)
    log_c = np.log(np.maximum(c, 1e-30))
    return HashFeatures(np.maximum(r, 1e-6), log_c, beta, np.full(num, 1.0 / num), variance)


@jax.jit
def _all_signs(
    counts: UInt8[Array, "m d"], r: Float[Array, "d num"], log_c: Float[Array, "d num"], beta: Float[Array, "d num"]
) -> Float[Array, "m num"]:
    """+1 or -1 for each hash of each row, some hashes and some rows at a time."""
    (m, d), num = counts.shape, r.shape[1]
    size = min(HASHES_AT_ONCE, num)
    order = jnp.argsort(jnp.sum(counts > 0, axis=1, dtype=jnp.int32))  # rows with equally long lists together
    counts = jnp.concatenate([counts[order], jnp.zeros((-m % ROWS_AT_ONCE, d), jnp.uint8)])
    groups = counts.reshape(-1, ROWS_AT_ONCE, d)

    def fill(i: Array, signs: Float[Array, "rows num"]) -> Float[Array, "rows num"]:
        start = jnp.minimum(i * size, num - size)  # the last part overlaps the one before
        part = [jax.lax.dynamic_slice_in_dim(table, start, size, axis=1) for table in (r, log_c, beta)]
        found = jax.lax.map(lambda group: _signs(group, *part), groups).reshape(-1, size)
        return jax.lax.dynamic_update_slice_in_dim(signs, found, start, axis=1)

    signs = jax.lax.fori_loop(0, -(-num // size), fill, jnp.zeros((counts.shape[0], num), jnp.float32))
    return signs[jnp.argsort(order)]


def _signs(
    counts: Array, r: Float[Array, "d part"], log_c: Float[Array, "d part"], beta: Float[Array, "d part"]
) -> Float[Array, "rows part"]:
    """+1 or -1 for each hash of each row; +1 for rows without counts."""
    lists = as_lists(counts)
    log_counts = jnp.log(lists.counts.astype(jnp.float32))

    def look(part: Array, least: Float[Array, "rows part"]) -> Float[Array, "rows part"]:
        for i in range(TOGETHER):
            here, log_count = lists.columns[part, :, i], log_counts[part, :, i, None]
            rate, shift, height = (table.at[here].get(mode="promise_in_bounds") for table in (r, beta, log_c))
            t = jnp.floor(log_count / rate + shift)
            log_a = height - rate * (t - shift + 1.0)
            marked = (_bits(log_a) & jnp.uint32(0xFFFFFFFE)) | _random_bit(_bits(shift), t.astype(jnp.uint32))
            marked = jax.lax.bitcast_convert_type(marked, jnp.float32)
            least = jnp.where((marked < least) & (log_count >= 0.0), marked, least)
        return least

    nothing = jnp.full((counts.shape[0], r.shape[1]), jnp.inf, jnp.float32)
    least = jax.lax.fori_loop(0, lists.num_parts, look, nothing)
    return 1.0 - 2.0 * (_bits(least) & jnp.uint32(1)).astype(jnp.float32)


def _bits(values: Array) -> Array:
    return jax.lax.bitcast_convert_type(values, jnp.uint32)


def _random_bit(word: Array, t: Array) -> Array:
    """A bit that is practically independent for different words and different t (after MurmurHash3)."""
    word = word * jnp.uint32(0x9E3779B1) + t * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 15)) * jnp.uint32(0xC2B2AE35)
    word = (word ^ (word >> 13)) * jnp.uint32(0x27D4EB2F)
    return word >> 31
