"""Compiled programs are kept between commands, so that only the first of a kind waits for the compiler."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

OFF = ("0", "off", "no")
MOST_BYTES = 512 << 20


def keep_programs() -> None:
    """Tell JAX, before it is imported, where to keep them; a cache that the user has chosen stays."""
    if os.environ.get("DUALGP_CACHE", "").lower() in OFF or "jax" in sys.modules:
        return
    folder = Path(os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder())))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    with suppress(OSError):
        _keep_small(folder)


def cache_folder() -> Path:
    """The cache folder, one for each machine and version: programs of one processor may not run on another."""
    caches = os.environ.get("DUALGP_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "dualgp" / f"{platform.node()}-{platform.machine()}-jax-{version('jax')}"


def _keep_small(folder: Path) -> None:
    """Remove the programs that were used longest ago."""
    files = sorted(folder.glob("*"), key=lambda file: file.stat().st_mtime)
    left = sum(file.stat().st_size for file in files)
    for file in files:
        if left <= MOST_BYTES:
            return
        left -= file.stat().st_size
        file.unlink(missing_ok=True)
