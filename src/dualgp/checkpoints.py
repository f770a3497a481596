"""The state of unfinished work in one file, with the fingerprint of the problem that it belongs to."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dualgp._container import NotReadable, read, write
from dualgp.sharding import agreed, gather, place_like, writes

FORMAT = "dualgp-checkpoint-1"


class Checkpoint:
    """A file that a run saves itself to, and continues from if it belongs to the same problem.

    `problem` is everything that the run depends on; its fingerprint is stored in the file. Of many processes all save
    and load, the first one writes, and their number may be another when they go on.
    """

    def __init__(self, path: str | os.PathLike, problem: Any) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"There is no folder {self.path.parent} to write the checkpoint {self.path} to.")
        self.fingerprint = _fingerprint(problem)

    def save(self, state: Any, progress: dict[str, Any]) -> None:
        """Write the arrays in `state` and the JSON values in `progress`; a reader sees the old file or the new one."""
        arrays = {f"leaf{i}": gather(leaf) for i, leaf in enumerate(_array_leaves(state))}
        if writes():
            write(self.path, {"format": FORMAT, "problem": self.fingerprint, "progress": progress}, arrays)

    def delete(self) -> None:
        """The work is done."""
        delete(self.path)

    def load(self, like: Any) -> tuple[Any, dict[str, Any]] | None:
        """What was saved, with arrays in the places of those in `like`; None where there is no file yet."""
        if not agreed(self.path.exists()):
            return None
        if not self.path.exists():
            raise FileNotFoundError(
                f"The first process sees {self.path}, process {jax.process_index()} does not. Put it where all do."
            )
        try:
            header, arrays = read(self.path)
            if header.get("format") != FORMAT:
                raise NotReadable(f"{self.path} is another kind of file.")
        except NotReadable as error:
            raise ValueError(
                f"{self.path} is not a checkpoint, or was damaged ({error}). Delete it to start anew."
            ) from None
        if header.get("problem") != self.fingerprint:
            raise ValueError(
                f"{self.path} belongs to another problem: other data, hyperparameters, settings or key. "
                "Delete it to start anew, or pass another checkpoint=."
            )
        dynamic, static = eqx.partition(like, eqx.is_array)
        places = jax.tree.leaves(dynamic)
        leaves = [place_like(arrays[f"leaf{i}"], place) for i, place in enumerate(places)]
        dynamic = jax.tree.unflatten(jax.tree.structure(dynamic), leaves)
        return eqx.combine(dynamic, static), header["progress"]


def delete(path: str | os.PathLike) -> None:
    """A file that is not needed any more; of many processes, one deletes it."""
    if writes():
        Path(path).unlink(missing_ok=True)


def _array_leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def _fingerprint(problem: Any) -> str:
    """A hash of all leaves of `problem`; of a kernel matrix that is kept, the shape has to do."""
    digest = hashlib.sha256(str(jax.tree.structure(problem)).encode())
    for leaf in jax.tree.leaves(problem):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if not eqx.is_array(leaf):
            digest.update(repr(leaf).encode())
            continue
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        if not (leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1] > 1000):
            digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
