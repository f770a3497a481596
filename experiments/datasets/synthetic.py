"""Data drawn from a Gaussian process prior, of any size."""

import jax
import numpy as np

from datasets.uci import Dataset
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess


def prior_draw(model: GaussianProcess, n: int, d: int, *, key: RandomKey, num_test: int = 1000) -> Dataset:
    """A function drawn from the prior at n + num_test uniform points in [0, 1]^d; the training targets are noisy.

    The test targets are the function itself, without noise.
    """
    x_key, f_key, noise_key = jax.random.split(key, 3)
    x = np.asarray(jax.random.uniform(x_key, (n + num_test, d), np.float32))
    f = np.asarray(model.sample_prior(d, 1, key=f_key)(x)[0])
    noise = np.asarray(jax.random.normal(noise_key, (n,), np.float32)) * float(model.noise) ** 0.5
    return Dataset(x[:n], f[:n] + noise, x[n:], f[n:])
