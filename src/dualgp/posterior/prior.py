"""Draws from the prior as functions: phi(x) @ w."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._arrays import full_precision
from dualgp._random import independent_normals, subkeys
from dualgp._types import AnyArray, Points, RandomKey
from dualgp.kernels import Features, Kernel


class PriorPaths(eqx.Module):
    """phi(x) @ w: draws from the prior as functions, (m, d) -> (m, s)."""

    features: Features
    weights: Float[AnyArray, "num s"]

    @full_precision
    def __call__(self, x: Points) -> Float[Array, "m s"]:
        return self.features(x) @ jnp.asarray(self.weights, x.dtype)


def prior_paths(kernel: Kernel, d: int, num_samples: int, key: RandomKey, num_features: int = 4096) -> PriorPaths:
    """`num_samples` functions drawn from the prior, by random features."""
    feature_key, weight_key = subkeys(key, 2)
    features = kernel.features(feature_key, num_features, d)
    return PriorPaths(features, independent_normals(weight_key, features.num, num_samples))
