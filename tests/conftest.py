"""One core for each worker, and shapes checked at every call: both before JAX and dualgp are imported."""

import os
import sys
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
    """Most of the suite's time is compilation: workers, and the next run in this checkout, share its results."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


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


one_core_per_worker()
compile_once()
check_annotations()
