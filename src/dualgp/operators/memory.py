"""How much of the machine's memory may be used."""

import os

KEEP_SHARE = 0.25  # of it may go into keeping K


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's where that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    try:
        with open("/sys/fs/cgroup/memory.max") as limit:
            return min(total, int(limit.read()))
    except (OSError, ValueError):
        return total
