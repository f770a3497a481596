"""Random numbers drawn once on the host: NumPy's generator needs no compilation, JAX's takes a second.

Keys are split here as well: every shape of `jax.random.split` takes 0.1 s.
"""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._types import RandomKey

_SUBKEYS = 1 << 31  # larger than any number in the path of a generator


def generator(key: RandomKey, *path: int) -> np.random.Generator:
    """The generator that belongs to a key; `path` numbers independent ones under the same key."""
    words = np.ravel(jax.random.key_data(key)).tolist()
    return np.random.default_rng(np.random.SeedSequence(words, spawn_key=path))


def subkey(key: RandomKey, *path: int | str) -> RandomKey:
    """A separate key for each purpose: `subkey(key, "probe")`, `subkey(key, "round", 3)`."""
    numbers = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    words = generator(key, _SUBKEYS, *numbers).integers(1 << 32, size=jax.random.key_data(key).shape, dtype=np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(key))


def subkeys(key: RandomKey, num: int) -> list[RandomKey]:
    """`num` independent keys, to be used instead of this one."""
    return [subkey(key, i) for i in range(num)]


def independent_normals(
    key: RandomKey, num: int, num_samples: int, rows: slice | np.ndarray = slice(None)
) -> Float[np.ndarray, "rows s"]:
    """A column of standard normals for each sample; with more samples the first ones stay the same.

    `rows`: which of the `num` rows to return; a row has the same numbers whichever other rows are returned.
    """
    columns = (generator(key, i).standard_normal(num, np.float32)[rows].copy() for i in range(num_samples))
    return np.stack(list(columns), axis=1)
