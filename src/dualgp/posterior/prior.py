"""Draws from the prior as functions: phi(x) @ w."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from dualgp._arrays import full_precision, in_wide
from dualgp._random import independent_normals, subkeys
from dualgp._types import AnyArray, Points, RandomKey
from dualgp.kernels import Features, Kernel
from dualgp.operators.cross import evaluate
from dualgp.operators.noise import Noise


class PriorPaths(eqx.Module):
    """phi(x) @ w: draws from the prior as functions, (m, d) -> (m, s).

    `key`, as numbers, and `num_features` are the arguments of `prior_paths`, if it drew them.
    """

    features: Features
    weights: Float[AnyArray, "num s"]
    key: UInt32[AnyArray, " words"] | None = None
    num_features: int = eqx.field(default=0, static=True)

    @full_precision
    def __call__(self, x: Points) -> Float[Array, "m s"]:
        return self.features(x) @ jnp.asarray(self.weights, x.dtype)


def prior_paths(kernel: Kernel, d: int, num_samples: int, key: RandomKey, num_features: int = 4096) -> PriorPaths:
    """`num_samples` functions drawn from the prior, by random features."""
    feature_key, weight_key = subkeys(key, 2)
    features = kernel.features(feature_key, num_features, d)
    weights, words = independent_normals(weight_key, features.num, num_samples), np.asarray(jax.random.key_data(key))
    return PriorPaths(features, weights, words, num_features)


@in_wide
def draw_targets(
    prior: PriorPaths,
    kernel: Kernel,
    noise: Noise,
    key_data: AnyArray,
    x: Points,
    n: int,
    rows: slice | Int[np.ndarray, " rows"],
) -> Float[np.ndarray, "rows s"]:
    """phi(x) @ w + epsilon, at some of n rows. The draw of a row does not depend on the other rows asked for."""
    key = jax.random.wrap_key_data(jnp.asarray(key_data, jnp.uint32))
    columns = noise.draw(key, n, prior.weights.shape[1], rows)
    return columns + evaluate(prior, x, x, kernel)
