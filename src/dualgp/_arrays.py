"""Precision and tracing: the three facts about JAX arrays that the whole package relies on.

1. Inside our own computations 64-bit types are available (`wide`), whatever the global flag says, and every dtype is
   explicit. So float64 works without touching `jax.config`, and float32 work may keep float64 scalars where it matters.
2. What leaves the package is a NumPy array: a float64 `jax.Array` is not safe to use where 64-bit types are off.
3. Under `jax.jit`, `jax.grad` or `jax.vmap` the caller's own precision rules, and nothing is converted (`is_traced`).
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

_process: set[int] = set()  # the process that has used JAX, if any
_programs: list[str] = []  # one entry for each program that was compiled since they were last forgotten
# Each takes 2 MB and nine memory maps, of which Linux grants a process 65,530 (tests/attack/soak.py).
MOST_PROGRAMS = 500
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def _count(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event.endswith("backend_compile_duration"):
        _programs.append(event)


jax.monitoring.register_event_duration_secs_listener(_count)


def bound_programs() -> None:
    """Forget all compiled programs once there are MOST_PROGRAMS: a long session meets ever new numbers of rows.

    What is used again is compiled again, also functions of the caller's own.
    """
    if len(_programs) > MOST_PROGRAMS:
        _programs.clear()
        jax.clear_caches()


def wide() -> Any:
    """A context in which float64 exists. All arithmetic of the package happens in one; results keep their dtype."""
    refuse_fork()
    _process.clear()
    _process.add(os.getpid())
    return jax.enable_x64(True)


def refuse_fork() -> None:
    """Raise in a forked process, where arithmetic would hang: a fork does not have the threads of XLA."""
    if _process and os.getpid() not in _process:
        raise RuntimeError(
            "This process was forked from one that has used JAX, whose threads did not come along: it would hang. "
            "Start workers with multiprocessing.get_context('spawn') (or 'forkserver', or joblib's default), or fork "
            "before the first fit."
        )


def in_wide(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Decorate a host-side function so that its body runs in `wide()`."""

    @wraps(function)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        with wide():
            return function(*args, **kwargs)

    return wrapped


def is_traced(*trees: Any) -> bool:
    """Whether any leaf is being traced by a JAX transformation."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def is_here(array: Any) -> bool:
    """Whether this process holds the whole array. NumPy then adds it up: XLA takes 0.05 s to compile any sum."""
    return not isinstance(array, jax.Array) or array.is_fully_addressable


def as_parameter(value: Any) -> Any:
    """A hyperparameter as an array leaf: NumPy float64 unless it is a JAX value already (so that 0.7 stays 0.7)."""
    try:
        return value if isinstance(value, jax.Array) else np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"A hyperparameter must be a number or a list of numbers, got {value!r}.") from None


def as_floats(x: Any) -> jax.Array:
    """A JAX array in the caller's precision; whole numbers become floats."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def on_device(array: Any, dtype: Any) -> jax.Array:
    """A copy of the array in JAX's memory. `jnp.asarray` would compile the copy, 15 ms for every new shape."""
    if isinstance(array, jax.Array):
        return jnp.asarray(array, dtype)
    with np.errstate(over="ignore"):  # callers check for infinities
        return jax.device_put(np.array(array, dtype))


def full_precision(function: Callable) -> Callable:
    """Decorate a function of arrays whose matrix products need all digits.

    GPUs and TPUs multiply matrices in TF32 or bfloat16 unless they are told otherwise. On a CPU it changes nothing.
    """

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return wrapped


def platform_of(*trees: Any) -> str:
    """Where JAX computes with these arguments: the platform of the first array among them, or the default one."""
    arrays = (leaf for leaf in jax.tree.leaves(trees) if isinstance(leaf, jax.Array))
    return next((next(iter(array.devices())).platform for array in arrays), None) or jax.default_backend()


def compiled(function: Callable) -> Callable:
    """Decorate a function of arrays and modules that is only ever called from Python, never inside another `jax.jit`.

    On CPUs XLA uses half of a wide vector register unless it is told otherwise: a row block of K takes a quarter less
    time with all of it where there is AVX-512 (n = 50,000, d = 9, 512 rows: 11.5 ms against 15.4).
    """
    plain = full_precision(function)
    settings: dict[str, Any] = {"compiler_options": {"xla_cpu_prefer_vector_width": 512}}
    on_cpu, elsewhere = eqx.filter_jit(plain, **settings), eqx.filter_jit(plain)

    @wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return (on_cpu if platform_of(args, kwargs) == "cpu" else elsewhere)(*args, **kwargs)

    return wrapped
