"""Arrays and a JSON header in one file: an uncompressed .npz whose first member is the header. Never pickle.

A file is written under a temporary name of its own and then renamed: a reader sees the old file or the new one, however
many processes and threads write at once. Every member carries a checksum, which is compared on reading.
"""

from __future__ import annotations

import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FIRST_BYTES = b"PK\x03\x04"
HEADER = "header"


class NotReadable(ValueError):
    """A file that is not what it should be."""


def write(path: str | os.PathLike, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file, or leave what was there as it was."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to. Make it first.")
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.writing")
    try:
        with open(temporary, "xb") as file:  # with the permissions of any new file, unlike tempfile's
            np.savez(file, allow_pickle=False, **{HEADER: np.array(json.dumps(header)), **arrays})
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays; `NotReadable` if the file is damaged or something else altogether."""
    path = Path(path)
    with open(path, "rb") as file:
        if file.read(len(FIRST_BYTES)) != FIRST_BYTES:
            raise NotReadable(f"{path} is not a dualgp file.")
    try:
        with np.load(path, allow_pickle=False) as file:
            if HEADER not in file.files:
                raise NotReadable(f"{path} is not a dualgp file.")
            header = json.loads(str(file[HEADER]))
            arrays = {name: file[name] for name in file.files if name != HEADER}
    except NotReadable:
        raise
    except (OSError, EOFError, ValueError, KeyError, RecursionError, NotImplementedError, zipfile.BadZipFile) as error:
        raise NotReadable(f"{path} was cut short or damaged ({error}).") from None
    if not isinstance(header, dict):
        raise NotReadable(f"{path} is not a dualgp file.")
    return header, arrays
