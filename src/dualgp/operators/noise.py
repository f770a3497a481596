"""The noise of observations: what operator and model know about it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._arrays import as_parameter
from dualgp._checks import check_positive
from dualgp._random import independent_normals
from dualgp._types import AnyArray, Indices, Parameter, RandomKey


class Noise(eqx.Module):
    """Independent Gaussian noise, y_i = f(x_i) + N(0, variance): one variance for all rows."""

    variance: Parameter = eqx.field(converter=as_parameter)

    def diagonal(self, index: Indices, dtype: Any) -> Float[AnyArray, " batch"]:
        """The variances of these rows: A[i, i] - K[i, i]. By NumPy where nothing is JAX's."""
        if isinstance(index, np.ndarray) and isinstance(self.variance, np.ndarray):
            return np.broadcast_to(self.variance.astype(dtype), index.shape)
        return jnp.broadcast_to(jnp.asarray(self.variance, dtype), index.shape)

    @property
    def smallest(self) -> float:
        """A lower bound on the eigenvalues of A, for use outside `jax.jit`."""
        return float(np.min(np.asarray(self.variance)))

    def draw(self, key: RandomKey, n: int, num_samples: int, rows: slice | np.ndarray) -> Float[np.ndarray, "rows s"]:
        """A column of noise for each sample, for some of n rows: N(0, variance)."""
        return independent_normals(key, n, num_samples, rows) * np.sqrt(np.asarray(self.variance, np.float64))


def as_noise(noise: Any) -> Noise:
    """A `Noise`, or a positive variance as one; others are refused."""
    if isinstance(noise, Noise):
        return noise
    check_noise(noise)
    return Noise(noise)


def check_noise(noise: Any) -> None:
    """Noise is one positive number."""
    check_positive(
        noise,
        "noise (a variance)",
        "For noise-free data use a small value such as 1e-6 times the variance of y.",
    )
    if np.ndim(noise) != 0:
        raise ValueError(f"noise must be one number, got shape {np.shape(noise)}: it is the same for every row.")
