"""Threads of the linear algebra library, which share the cores with XLA's."""

import os
from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits

FEW_CORES = 4


def one_blas_thread_on_few_cores() -> AbstractContextManager:
    """Factorisations on one thread where cores are few.

    OpenBLAS's threads spin for tens of milliseconds after each call and take the cores from the kernel products that
    follow. On 2 cores a step of block descent (1,622 rows of 41,157) takes 149 ms with one thread and 232 with two.
    """
    return threadpool_limits(limits=1 if num_cores() <= FEW_CORES else None, user_api="blas")


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
