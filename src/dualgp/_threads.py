"""Limits for the threads of BLAS and LAPACK, which share the cores with the threads of XLA."""

import os
from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController

FEW_CORES = 4
SMALL = 2048  # rows: learning exactly from 1,200 takes 1.8 s on one thread and 2.4 on two (2 cores)


def one_blas_thread_on_few_cores() -> AbstractContextManager:
    """A context in which factorisations use one thread if there are few cores.

    OpenBLAS's threads spin for tens of milliseconds after each call and take the cores from the kernel products that
    follow. On 2 cores a step of block descent (1,622 rows of 41,157) takes 149 ms with one thread and 232 with two.
    """
    return _libraries().limit(limits=1 if num_cores() <= FEW_CORES else None, user_api="blas")


def one_blas_thread(rows: int) -> AbstractContextManager:
    """A context in which factorisations of matrices with at most `SMALL` rows use one thread.

    Beside other busy programs a small factorisation waits for OpenBLAS's other threads to be scheduled. `Neighbours` on
    3,000 rows takes 3 s on one thread and 6 on two; beside four busy programs 12 and 271 (benchmarks/load.py).
    """
    return _libraries().limit(limits=1 if rows <= SMALL else None, user_api="blas")


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _libraries() -> ThreadpoolController:
    """The loaded libraries, SciPy's included. Cached, because finding them takes 2 ms, longer than a prediction."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
