"""Arrays and a JSON header in one file: an .npz whose first member is the header. No pickle.

Files are not trusted: sizes are compared with the size of the file before memory is allocated, members are read to
their ends, so that zip compares its checksums, and the header has a checksum of the whole content. Members may be
compressed; the content is at most 50 times as large as the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from dualgp._files import check_file, replacing

FIRST_BYTES = b"PK\x03\x04"
HEADER, CHECKSUM = "header", "sha256"
KINDS = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
PIECE = 1 << 24  # bytes read in one call
SAMPLE = 1 << 18  # bytes of an array that are compressed to see whether that pays
MOST_TIMES = 50  # the largest ratio of content to file size


class NotReadable(ValueError):
    """The file is damaged, or not one of ours."""


def write(
    path: str | os.PathLike, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, compress: bool = False
) -> None:
    """Write the file, or leave what was there as it was. `compress` the members that become smaller by a quarter."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    members = {HEADER: np.array(json.dumps({**header, CHECKSUM: _checksum(header, arrays)})), **arrays}
    with replacing(path) as file:
        _write_members(file, members, compress)
        if compress and sum(array.nbytes for array in members.values()) > MOST_TIMES * file.tell():
            file.seek(0)
            file.truncate()
            _write_members(file, members, False)


def _write_members(file: BinaryIO, members: Mapping[str, np.ndarray], compress: bool) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            if compress and _pays(array):
                info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                npy.write_array(member, array, version=(1, 0), allow_pickle=False)


def _pays(array: np.ndarray) -> bool:
    """Whether compression makes the beginning of an array smaller by a quarter."""
    some = np.ravel(array)[: max(1, SAMPLE // array.itemsize)].tobytes()
    return len(zlib.compress(some)) < 0.75 * len(some)


def read(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays; raises `NotReadable` if the file is damaged or not one of ours."""
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
        except Exception as error:  # a damaged file may raise any error
            why = " ".join(str(error).split()) or type(error).__name__
            raise NotReadable(f"{path} was cut short or damaged ({why}).") from None
    if not is_ours:
        raise NotReadable(f"{path} is not a dualgp file.")
    return header, members


def _members(file: BinaryIO) -> dict[str, np.ndarray]:
    """All arrays of the archive, each read whole."""
    left, members = MOST_TIMES * os.fstat(file.fileno()).st_size, {}
    with zipfile.ZipFile(file) as archive:
        if f"{HEADER}.npy" not in archive.namelist():
            return {}
        for info in archive.infolist():
            name, left = info.filename.removesuffix(".npy"), left - info.file_size
            if info.compress_type not in KINDS or name in members or left < 0 or info.flag_bits & 1:
                raise ValueError(f"member {name} is packed in another way, encrypted, there twice or much too large")
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
    """A checksum of the header, and of name, dtype, shape and content of every array."""
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
