"""The state of an unfinished solve in one file: arrays and a JSON header, never pickle, written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

FORMAT = "dualgp-checkpoint-1"


class Checkpoint:
    """A file that a solve saves itself to, and continues from if it belongs to the same problem.

    `problem` is everything that the run depends on; its fingerprint is stored in the file.
    """

    def __init__(self, path: str | os.PathLike, problem: Any) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"There is no folder {self.path.parent} to write the checkpoint {self.path} to.")
        self.fingerprint = _fingerprint(problem)

    def save(self, state: Any, progress: dict[str, Any]) -> None:
        """Write the arrays in `state` and the JSON values in `progress`; a reader sees the old file or the new one."""
        arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(_array_leaves(state))}
        header = {"format": FORMAT, "problem": self.fingerprint, "progress": progress}
        temporary = self.path.with_name(self.path.name + ".writing")
        with open(temporary, "wb") as file:
            np.savez(file, header=np.array(json.dumps(header)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)

    def load(self, like: Any) -> tuple[Any, dict[str, Any]] | None:
        """What was saved, with arrays in the places of those in `like`; None where there is no file yet."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                leaves = [file[f"leaf{i}"] for i in range(len(file.files) - 1)]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint, or was damaged ({error}). Delete it to start anew."
            ) from None
        if header.get("format") != FORMAT or header.get("problem") != self.fingerprint:
            raise ValueError(
                f"{self.path} belongs to another solve: other data, hyperparameters, solver settings or key. "
                "Delete it to start anew, or pass another checkpoint=."
            )
        dynamic, static = eqx.partition(like, eqx.is_array)
        dynamic = jax.tree.unflatten(jax.tree.structure(dynamic), [jnp.asarray(leaf) for leaf in leaves])
        return eqx.combine(dynamic, static), header["progress"]


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
