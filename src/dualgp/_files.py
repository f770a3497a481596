"""Files that are written whole or not at all, and paths that one process locks.

A file is written under a temporary name of its own and then renamed: a reader sees the old file or the new one, however
many processes and threads write at the same time. Processes hold temporary files and locks by `flock`, which ends with
the process. So files of killed processes are told from files in use, and removed. On a file system without such locks
nothing is removed and nothing is locked.
"""

from __future__ import annotations

import glob
import os
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WRITING, LOCK = "writing", "lock"
_held: dict[tuple[int, str], list[Any]] = {}  # locks of this process by path: open file and number of owners
_guard = threading.Lock()


def check_file(path: str | os.PathLike) -> Path:
    """The path of an ordinary file, or of a new file in an existing folder; other paths are refused."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"A path must be text, such as 'model.dgp', got {path!r}.")
    if "\0" in os.fsdecode(path) or not os.fsdecode(path):
        raise ValueError(f"{os.fsdecode(path)!r} is not a file's name. Give it one, such as model.dgp.")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Add the name of a file.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not an ordinary file, but a device or a pipe. Choose another name.")
    return path


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """An open file that replaces `path` when the block ends without an error; otherwise `path` stays unchanged."""
    path = check_file(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to. Make it first.")
    temporary = None
    try:
        _remove_litter(path)
        file, temporary = _begin(path)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows cannot rename open files
            os.replace(temporary, path)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error.strerror or error}). What was there is as it was. Make room, or "
            "choose another folder."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def remove(path: str | os.PathLike) -> None:
    """Remove a file, if it is there, and what killed writers of it left."""
    Path(path).unlink(missing_ok=True)
    _remove_litter(Path(path))


def _begin(path: Path) -> tuple[BinaryIO, Path]:
    """A new file beside `path`, held by this process, with the permissions of any new file, unlike tempfile's."""
    while True:
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.{WRITING}")
        file = open(temporary, "xb")  # noqa: SIM115
        if _try_lock(file) is not False and temporary.exists():
            return file, temporary
        file.close()  # another process removed it before the lock


def _remove_litter(path: Path) -> None:
    """Remove temporary files of processes that have ended."""
    for name in glob.glob(f"{glob.escape(str(path))}.{'[0-9a-f]' * 32}.{WRITING}"):
        with suppress(OSError), open(name, "r+b") as file:
            if _try_lock(file):
                os.unlink(name)


def hold(path: str | os.PathLike, owner: Any) -> None:
    """Lock `path` as long as `owner` lives; raise if another process holds the lock."""
    key = os.getpid(), os.path.realpath(path)
    with _guard:
        if key not in _held:
            _held[key] = [_lock_file(Path(key[1])), 0]
        _held[key][1] += 1
    weakref.finalize(owner, _release, key)


def _lock_file(path: Path) -> BinaryIO | None:
    """The open lock file, or None if the file system has no locks."""
    name = path.with_name(f"{path.name}.{LOCK}")
    while True:
        try:
            file = open(name, "a+b")  # noqa: SIM115
        except OSError:
            return None  # the folder is not writable: the caller reports it
        is_mine = _try_lock(file)
        if is_mine is False:
            file.seek(0)
            said = file.read(20).decode(errors="replace").strip() or "another"
            file.close()
            raise ValueError(
                f"Another process (process {said} on its host) uses {path}. Wait until it has ended, or choose another "
                "path."
            )
        if is_mine is None:
            file.close()
            return None
        with suppress(OSError):
            if os.path.samestat(os.stat(name), os.fstat(file.fileno())):
                file.truncate(0)
                file.write(str(os.getpid()).encode())
                file.flush()
                return file
        file.close()  # its last owner removed it before the lock


def _release(key: tuple[int, str]) -> None:
    if key[0] != os.getpid():
        return  # in a fork: the lock belongs to the parent
    with _guard:
        entry = _held[key]
        entry[1] -= 1
        if not entry[1]:
            del _held[key]
            if entry[0] is not None:
                with suppress(OSError):
                    os.unlink(f"{key[1]}.{LOCK}")
                entry[0].close()


def _try_lock(file: BinaryIO) -> bool | None:
    """Whether this process now holds the lock; None if the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
