"""The noise of observations, for operators and models."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dualgp._arrays import as_parameter
from dualgp._checks import as_float_array, check_positive
from dualgp._random import independent_normals
from dualgp._types import AnyArray, Parameter, RandomKey


class Noise(eqx.Module):
    """Independent Gaussian noise, y_i = f(x_i) + N(0, variance_i): one variance for all rows, or one for each."""

    variance: Parameter = eqx.field(converter=as_parameter)

    def diagonal(self, index: Int[AnyArray, "*batch"], dtype: Any) -> Float[AnyArray, "*batch"]:
        """The variances of these rows: A[i, i] - K[i, i]. In NumPy if all arguments are NumPy arrays.

        Rows of padding, beyond the last one, have the variance of the last row.
        """
        if isinstance(index, np.ndarray) and isinstance(self.variance, np.ndarray):
            here = self.variance
            some = here[np.minimum(index, len(here) - 1)] if here.ndim else np.broadcast_to(here, index.shape)
            return some.astype(dtype)
        every = jnp.asarray(self.variance)
        chosen = jnp.take(every, index, mode="clip") if every.ndim else jnp.broadcast_to(every, index.shape)
        return chosen.astype(dtype)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have one variance."""
        return np.ndim(self.variance) == 0

    @property
    def smallest(self) -> float:
        """A lower bound on the eigenvalues of A, for use outside `jax.jit`."""
        return float(np.min(np.asarray(self.variance)))

    @property
    def largest(self) -> float:
        """An upper bound on what the noise adds to the largest eigenvalue of K, for use outside `jax.jit`."""
        return float(np.max(np.asarray(self.variance)))

    def subset(self, rows: np.ndarray | slice) -> Noise:
        """The noise of these rows."""
        return self if self.is_uniform else Noise(np.asarray(self.variance)[rows])

    def draw(self, key: RandomKey, n: int, num_samples: int, rows: slice | np.ndarray) -> Float[np.ndarray, "rows s"]:
        """A column of noise for each sample, for some of n rows: N(0, variance)."""
        deviation = np.sqrt(np.asarray(self.variance, np.float64))
        return independent_normals(key, n, num_samples, rows) * (deviation[rows, None] if deviation.ndim else deviation)


def join(noise: Noise, n: int, more: Noise, m: int) -> Noise:
    """The noise of n rows followed by m further rows."""
    if not m or (noise.is_uniform and more.is_uniform and float(noise.variance) == float(more.variance)):
        return noise
    parts = [np.broadcast_to(np.asarray(one.variance), (count,)) for one, count in ((noise, n), (more, m))]
    return Noise(np.concatenate(parts))


def as_noise(noise: Any, n: int) -> Noise:
    """The noise of n rows from a `Noise`, a positive variance, or one for each row."""
    if isinstance(noise, Noise):
        return noise
    noise = as_float_array(noise, "noise")
    return Noise(check_noises(noise, n) if noise.ndim else check_noise(noise))


def check_noise(noise: Any) -> Any:
    """The noise of a model: one positive number, or an error."""
    check_positive(
        noise, "noise (a variance)", "For noise-free data use a small value such as 1e-6 times the variance of y."
    )
    if np.ndim(noise) != 0:
        raise ValueError(
            f"noise must be one number, got shape {np.shape(noise)}. Variances of the rows belong to the data: "
            "model.condition(x, y, noise=variances)."
        )
    return noise


def check_noises(noise: Any, n: int, may_be_zero: bool = False) -> Float[np.ndarray, " n"]:
    """Variances of n rows in float64; refuse other values."""
    variances = np.atleast_1d(np.asarray(as_float_array(noise, "noise"), np.float64))
    if variances.shape != (n,):
        raise ValueError(f"noise must have one variance for each of the {n} row(s), got shape {variances.shape}.")
    bad = ~(((variances > 0) | (may_be_zero & (variances == 0))) & np.isfinite(variances))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"noise must be positive and finite, but {int(bad.sum())} value(s) are not; the first is noise[{first}] = "
            f"{variances[first]:.4g}. Use a small variance, such as 1e-6 times that of y, for rows without noise."
        )
    return variances
