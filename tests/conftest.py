"""One core for each worker, and shapes checked at every call: both before JAX and dualgp are imported."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from jaxtyping import install_import_hook


def one_core_per_worker() -> None:
    """XLA and BLAS size their thread pools by the cores they may use: two workers with two threads each are slower."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def compile_once() -> None:
    """Most of the suite's time is compilation: workers, later runs and other checkouts share its results."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "dualgp-tests" / f"jax-{version('jax')}"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        keep_small(folder)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def keep_small(folder: Path, most_bytes: int = 2 << 30) -> None:
    """Remove the programs that were used longest ago, and empty files that a killed process left.

    JAX's own limit (JAX_COMPILATION_CACHE_MAX_SIZE) looks at every file at each write: thousands of times thousands.
    """
    files = [(file, file.stat()) for file in folder.glob("*")]
    left = sum(stat.st_size for _, stat in files)
    for file, stat in sorted(files, key=lambda pair: max(pair[1].st_atime, pair[1].st_mtime)):
        if left > most_bytes or stat.st_size == 0:
            file.unlink(missing_ok=True)
            left -= stat.st_size


def check_annotations() -> None:
    """beartype and jaxtyping look at every call into the package."""
    install_import_hook("dualgp", "typechecker.check")


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_code():
    """Compiled functions hold pieces of mapped memory, of which Linux grants a process 65,530: a thousand tests in one
    process use them up, and the next compilation ends it."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.clear_caches()


sys.path.append(str(Path(__file__).parents[1] / "experiments"))
one_core_per_worker()
compile_once()
check_annotations()
