"""Arrays and a JSON header in one file: an uncompressed .npz whose first member is the header. Never pickle.

Nothing in a file is believed: sizes are compared with the file's before anything is allocated, members are read to
their ends, so that zip's checksums are compared, and the header has a checksum of everything.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from dualgp._files import check_file, replacing

FIRST_BYTES = b"PK\x03\x04"
HEADER, CHECKSUM = "header", "sha256"
PIECE = 1 << 24  # bytes that are read at once


class NotReadable(ValueError):
    """A file that is not what it should be."""


def write(path: str | os.PathLike, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file, or leave what was there as it was."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps({**header, CHECKSUM: _checksum(header, arrays)})
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **{HEADER: np.array(text), **arrays})


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays; `NotReadable` if the file is damaged or something else altogether."""
    path = check_file(path)
    with open(path, "rb") as file:
        if file.read(len(FIRST_BYTES)) != FIRST_BYTES:
            raise NotReadable(f"{path} is not a dualgp file.")
        try:
            members = _members(file)
            header: Any = json.loads(str(members.pop(HEADER))) if HEADER in members else None
            is_ours = isinstance(header, dict)
            said = header.pop(CHECKSUM, None) if is_ours else None  # files of version 1 have none
            if said is not None and said != _checksum(header, members):
                raise ValueError("its checksum is another")
        except Exception as error:  # what a damaged file makes its readers raise has no end
            why = " ".join(str(error).split()) or type(error).__name__
            raise NotReadable(f"{path} was cut short or damaged ({why}).") from None
    if not is_ours:
        raise NotReadable(f"{path} is not a dualgp file.")
    return header, members


def _members(file: BinaryIO) -> dict[str, np.ndarray]:
    """All arrays of the archive, each read whole."""
    left, members = os.fstat(file.fileno()).st_size, {}
    with zipfile.ZipFile(file) as archive:
        if f"{HEADER}.npy" not in archive.namelist():
            return {}
        for info in archive.infolist():
            name, left = info.filename.removesuffix(".npy"), left - info.file_size
            if info.compress_type != zipfile.ZIP_STORED or name in members or left < 0 or info.flag_bits & 1:
                raise ValueError(f"member {name} is compressed, encrypted, there twice or larger than the file")
            with archive.open(info) as member:
                members[name] = _array(member, info.file_size)  # type: ignore[arg-type]
    return members


def _array(member: zipfile.ZipExtFile, size: int) -> np.ndarray:
    """The array in a member of `size` bytes, which must be all that is in it."""
    if npy.read_magic(member) != (1, 0):
        raise ValueError("an array of an unknown kind")
    shape, is_fortran, dtype = npy.read_array_header_1_0(member)
    if dtype.hasobject or is_fortran or member.tell() + dtype.itemsize * math.prod(shape) != size:
        raise ValueError(f"an array whose size is not that of shape {shape}")
    array = np.empty(shape, dtype)
    view = memoryview(array.reshape(-1).view(np.uint8))
    for start in range(0, len(view), PIECE):
        piece = view[start : start + PIECE]
        if member.readinto(piece) != len(piece):
            raise EOFError("the end is missing")
    if member.read():  # at the end of a member zipfile compares the checksum
        raise ValueError("bytes are left over")
    return array


def _checksum(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Of everything: the header, and the name, dtype, shape and content of each array."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        if array.dtype.hasobject:
            raise ValueError(
                f"{name} holds Python objects; numbers and text can be written (allow_pickle is never on)."
            )
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(memoryview(array.reshape(-1).view(np.uint8)))
    return digest.hexdigest()
