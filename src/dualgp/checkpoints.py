"""The state of unfinished work in one file, with the fingerprint of the problem that it belongs to."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from dualgp import __version__
from dualgp._files import check_file, hold, remove
from dualgp._npz import NotReadable, read, write
from dualgp.operators.layout import agree, gather, place_like, writes

FORMAT = "dualgp-checkpoint-2"


class Checkpoint:
    """A file that a run saves itself to, and continues from if it belongs to the same problem.

    While this object lives, other processes that open the same path get an error.
    `problem` is everything that the run depends on; its fingerprint is stored in the file. With many processes all of
    them save and load, and the first one writes. A run may resume with another number of processes.
    """

    def __init__(self, path: str | os.PathLike, problem: Any) -> None:
        self.path = check_file(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"There is no folder {self.path.parent} to write the checkpoint {self.path} to.")
        self.fingerprint = fingerprint(problem)
        if writes():
            hold(self.path, self)

    def save(self, state: Any, progress: dict[str, Any]) -> None:
        """Write the arrays in `state` and the JSON values in `progress`; a reader sees the old file or the new one."""
        leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
        arrays = {f"leaf{i}": gather(leaf) for i, leaf in enumerate(leaves)}
        header = {"format": FORMAT, "dualgp": __version__, "problem": self.fingerprint, "progress": progress}
        if writes():
            write(self.path, header, arrays)

    def delete(self) -> None:
        """Remove the file, because the work is done."""
        delete(self.path)

    def load(self, like: Any) -> tuple[Any, dict[str, Any]] | None:
        """The saved state, with arrays in the places of those in `like`; None if there is no file.

        An empty array in `like` is the place of an array of any size and dtype.
        """
        if not agree(self.path.exists()):
            return None
        if not self.path.exists():
            raise FileNotFoundError(
                f"The first process sees {self.path}, process {jax.process_index()} does not. Put it where all do."
            )
        try:
            header, arrays = read(self.path)
            self._check_header(header)
        except NotReadable as error:
            raise ValueError(
                f"{self.path} is not a checkpoint, or was damaged ({error}). Delete it to start anew."
            ) from None
        dynamic, static = eqx.partition(like, eqx.is_array)
        places, structure = jax.tree.flatten(dynamic)
        self._check_arrays(arrays, places)
        leaves = [place_like(arrays[f"leaf{i}"], place) for i, place in enumerate(places)]
        return eqx.combine(jax.tree.unflatten(structure, leaves), static), header["progress"]

    def _check_header(self, header: dict[str, Any]) -> None:
        if header.get("format") != FORMAT:
            raise NotReadable(f"it is not of the kind {FORMAT}")
        if not {"dualgp", "problem", "progress"} <= set(header):
            raise NotReadable("its header is not complete")
        if header["dualgp"] != __version__:
            raise ValueError(
                f"{self.path} was written by dualgp {header['dualgp']}, this is {__version__}: delete it to start anew."
            )
        if header["problem"] != self.fingerprint:
            raise ValueError(
                f"{self.path} belongs to another problem: other data, hyperparameters, settings or key. "
                "Delete it to start anew, or pass another checkpoint=."
            )

    def _check_arrays(self, arrays: dict[str, np.ndarray], places: list[Any]) -> None:
        """Refuse arrays whose number, shapes or dtypes are not those of this run."""
        saved = [arrays.get(f"leaf{i}") for i in range(max(len(arrays), len(places)))]
        pairs = zip(saved, places, strict=False)
        if len(saved) != len(places) or not all(_fits(array, place) for array, place in pairs):
            raise ValueError(
                f"{self.path} holds other arrays than this run would save, although its version is the same "
                f"({__version__}). Delete it to start anew."
            )


def delete(path: str | os.PathLike) -> None:
    """Remove a checkpoint that is no longer needed; the first process does it."""
    if writes():
        remove(path)


def _fits(array: np.ndarray | None, place: Any) -> bool:
    """Whether an array may replace another one. Sharded arrays may differ in their rows of padding."""
    if array is None or array.ndim != place.ndim:
        return False
    is_sharded = isinstance(place, jax.Array) and isinstance(place.sharding, NamedSharding)
    first = 1 if is_sharded else 0
    return place.size == 0 or (array.dtype, array.shape[first:]) == (place.dtype, place.shape[first:])


def fingerprint(problem: Any) -> str:
    """A hash of all leaves of `problem` and of the structure of the tree."""
    digest = hashlib.sha256(str(jax.tree.structure(problem)).encode())
    for leaf in jax.tree.leaves(problem):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if not eqx.is_array(leaf):
            digest.update(repr(leaf).encode())
            continue
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
