"""Random numbers drawn once on the host: NumPy's generator needs no compilation, JAX's takes a second."""

import jax
import numpy as np
from jaxtyping import Float

from dualgp._types import RandomKey


def generator(key: RandomKey, *path: int) -> np.random.Generator:
    """The generator that belongs to a key; `path` numbers independent ones under the same key."""
    return np.random.default_rng([*np.ravel(jax.random.key_data(key)).tolist(), *path])


def independent_normals(
    key: RandomKey, num: int, num_samples: int, rows: slice = slice(None)
) -> Float[np.ndarray, "rows s"]:
    """A column of standard normals for each sample; with more samples the first ones stay the same.

    `rows`: of the `num` numbers of a column those to keep, so that who has a share of the rows has the same numbers.
    """
    columns = (generator(key, i).standard_normal(num, np.float32)[rows].copy() for i in range(num_samples))
    return np.stack(list(columns), axis=1)
