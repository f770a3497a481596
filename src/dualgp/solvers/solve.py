"""`solve`, the public function. It checks the columns, and scales those of extreme size for the solve."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._arrays import in_wide, is_here
from dualgp._checks import as_float_array, check_finite, refuse_traced
from dualgp._types import AnyArray, Columns, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.auto import Auto
from dualgp.solvers.base import Run, Solution, Solver, check_passes
from dualgp.solvers.stopping import Deadline, as_deadline

SMALLEST = 1e-300  # XLA flushes smaller numbers to zero


@in_wide
def solve(
    operator: Operator,
    b: Any,
    solver: Solver | str = "auto",
    *,
    key: RandomKey | None = None,
    start: Any = None,
    max_seconds: float | Deadline | None = None,
    max_passes: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
) -> Solution:
    """Solve (K + noise * I) @ weights = b.

    **Arguments:**

    - `b`: one (n,) or many (n, s) right-hand sides, solved together.
    - `solver`: a solver such as `SDD()`, or "auto".
    - `key`: randomness; not needed by `Cholesky`.
    - `start`: weights to start from, in the shape of `b`; zeros by default. Or a `Solution` to continue: the
      same method resumes from its state, momentum included, so that two halves with the same key are one run.
    - `max_seconds`, `max_passes`: stop there and return what there is. Ctrl-C does the same. Compilation, preparation
      and the final check count. At least one step is taken. `max_seconds` may be a `Deadline` that has begun already.
    - `checkpoint`: a file to which the state is saved regularly. The same call resumes from it, and ends with the same
      weights as an uninterrupted one. It is deleted on convergence.
    - `progress`: show a progress bar.
    """
    refuse_traced("solve", operator, b)
    known: dict[str, Any] = {"start": start}
    if isinstance(start, Solution):
        known = {"start": start.weights, "start_residual": start.residuals, "resume": start}
    limits: dict[str, Any] = {"deadline": as_deadline(max_seconds), "max_passes": max_passes}
    run = Run(key, checkpoint=checkpoint, progress=progress, **known, **limits)
    return solve_run(operator, b, as_solver(solver), run)


def solve_run(operator: Operator, b: Any, solver: Solver, run: Run) -> Solution:
    """`solve` with the settings of the run as one object."""
    check_passes(run.max_passes)
    columns = _as_columns(b, operator, "b")
    start, residual = (
        None if array is None else _as_columns(array, operator, "start") for array in (run.start, run.start_residual)
    )
    if start is not None and start.shape != columns.shape:
        raise ValueError(f"start has shape {start.shape}, but b has {columns.shape}. Pass weights in the shape of b.")
    scale, validation = _power_of_two_scale(columns), run.validation
    is_scaled = bool((scale != 1).any())  # a product with ones would be compiled for nothing
    if is_scaled:
        start, residual = (None if array is None else array / scale for array in (start, residual))
        columns = columns / scale
        validation = None if validation is None else replace(validation, scale=scale.astype(np.float64))
    run = replace(run, start=start, start_residual=residual, validation=validation)
    solution = solver.run(operator, columns, run)

    def give_back(array: AnyArray) -> AnyArray:
        array = array * scale if is_scaled else array
        array = array if operator.layout.holds(b) else operator.layout.collect(array)
        return array if np.ndim(b) == 2 else array[:, 0]

    residuals = None if solution.residuals is None else give_back(solution.residuals)
    return replace(solution, weights=give_back(solution.weights), residuals=residuals)


def as_solver(solver: Solver | str) -> Solver:
    """The solver itself, or the automatic choice for "auto"."""
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str) and solver == "auto":
        return Auto()
    raise TypeError(f"solver must be 'auto' or a solver such as SDD(), got {solver!r}.")


def _as_columns(b: Any, operator: Operator, name: str) -> Columns:
    if operator.layout.holds(b):
        return b
    array = as_float_array(b, name)
    if array.ndim not in (1, 2) or array.shape[0] != operator.n:
        raise ValueError(
            f"{name} has shape {array.shape}, but the operator has {operator.n} rows. Pass ({operator.n},) or "
            f"({operator.n}, columns)."
        )
    check_finite(array, name)
    largest = np.abs(np.asarray(array)).max(initial=0.0, axis=0) if is_here(array) else np.ones(1)
    if array.size == 0 or np.any((largest > 0) & (largest < SMALLEST)):
        raise ValueError(f"{name} has a column that is empty, or smaller than {SMALLEST:g} throughout. Rescale it.")
    return operator.layout.place(array[:, None] if array.ndim == 1 else array, operator.dtype)


def _power_of_two_scale(b: Columns) -> Float[np.ndarray, " s"]:
    """The power of two that scales columns of extreme size, so that squares do not overflow; 1 for others."""
    if is_here(b):
        columns = np.asarray(b)
        size = np.maximum(columns.max(axis=0, initial=0.0), -columns.min(axis=0, initial=0.0)).astype(np.float64)
    else:
        size = np.asarray(_sizes(b), np.float64)
    ordinary = (size == 0) | ((size > 1e-6) & (size < 1e6))
    return np.where(ordinary, 1.0, np.exp2(np.floor(np.log2(np.where(size > 0, size, 1.0))))).astype(b.dtype)


@eqx.filter_jit
def _sizes(b: Columns) -> Float[Array, " s"]:
    return jnp.max(jnp.abs(b), axis=0, initial=0.0)
