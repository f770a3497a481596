"""How much of the machine's memory may be used."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KEEP_SHARE = 0.25  # of it may go into keeping K
GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's where that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return min([total, *_group_limits()])


def _group_limits() -> Iterator[int]:
    """The limits of this process's control group and of those around it, in both versions of Linux's control groups."""
    try:
        groups = OWN.read_text().splitlines()
    except OSError:
        return
    for _, controllers, name in (line.split(":", 2) for line in groups):
        if controllers not in ("", "memory"):
            continue
        root, file = (GROUPS, "memory.max") if not controllers else (GROUPS / "memory", "memory.limit_in_bytes")
        group = root / name.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such group here, or "max"
                yield int((folder / file).read_text())
            if folder == root:
                break
