"""One core for each worker, programs compiled once, and shapes checked: all before JAX and dualgp are imported."""

import getpass
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

from jaxtyping import install_import_hook

# Modules whose annotations are not yet right (two sizes under one name, or None left out). Empty this set.
UNCHECKED = set()


def one_core_per_worker() -> None:
    """XLA and BLAS size their thread pools by the cores they may use: two workers with two threads each are slower."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def compile_once() -> None:
    """Most of the suite's time is compilation: workers, and the next run, share its results."""
    folder = os.path.join(tempfile.gettempdir(), f"dualgp-tests-{getpass.getuser()}")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def check_annotations() -> None:
    """beartype and jaxtyping look at every call into the package."""
    root = Path(find_spec("dualgp").submodule_search_locations[0])
    modules = {".".join(("dualgp", *path.relative_to(root).with_suffix("").parts)) for path in root.rglob("*.py")}
    install_import_hook(sorted(modules - UNCHECKED), "typechecker.check")


one_core_per_worker()
compile_once()
check_annotations()
