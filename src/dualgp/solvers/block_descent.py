"""Block descent with residual-driven momentum: no step size, because every block is solved exactly.

A step takes a random block of coordinates, solves their equations exactly, and lets momentum carry the change on:

    R = A[I] x - b[I];   U = A[I, I]^-1 R
    z[I] += U;   z *= theta;   x[I] -= U;   x -= eta z                             eta = (block size) / 2n

`theta` follows from how fast the residual has been falling (CD++, arXiv 2501.11673). It is measured on the first column
alone: steps then do not depend on the other columns, and the variance of samples is never below the exact one.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dualgp._checks import check_count
from dualgp._types import Columns, Indices, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, check_tol

BLOCK_PER_ROOT_N, LARGEST_BLOCK = 8, 8192


class Momentum(NamedTuple):
    """How fast the residual falls: sums of ||R||^2 over the two halves of a window of steps, and what they gave."""

    step: Int[Array, ""]
    early: Float[Array, ""]
    late: Float[Array, ""]
    ratio: Float[Array, ""]
    theta: Float[Array, ""]


class BlockState(NamedTuple):
    """What the next step needs."""

    x: Columns
    z: Columns
    momentum: Momentum
    order: Int[Array, " n"]


class BlockDescent(IterativeSolver):
    """Random blocks, exact block solves, momentum from the residual: nothing to tune.

    **Arguments:**

    - `block_size`: by default 8 sqrt(n), at most 8,192: there a factorisation costs a fraction of the row product.
    - `tol`: stop once the relative residual of every column is below this.
    - `max_passes`: the budget.

    A step costs `block_size * n` kernel entries and a float64 Cholesky factorisation of a block.
    """

    _: KW_ONLY
    block_size: int | Literal["auto"] = "auto"
    tol: float = 1e-2
    max_passes: float = 200.0

    def __check_init__(self) -> None:
        if self.block_size != "auto":
            check_count(self.block_size, "block_size", 1)
        if not self.max_passes > 0:
            raise ValueError(f"max_passes must be positive, got {self.max_passes!r}.")
        check_tol(self.tol)

    def init(self, operator: Operator, b: Columns, start: Columns) -> BlockState:
        zero = jnp.zeros((), b.dtype)
        momentum = Momentum(step=jnp.int32(0), early=zero, late=zero, ratio=jnp.ones_like(zero), theta=zero)
        return BlockState(start, jnp.zeros_like(start), momentum, order=jnp.arange(operator.n, dtype=jnp.int32))

    def step(
        self, operator: Operator, b: Columns, state: BlockState, key: RandomKey
    ) -> tuple[BlockState, Float[Array, " s"]]:
        x, z, momentum, order = state
        n, size = operator.n, self.block_size

        # The data are shuffled once an epoch and taken block by block: a draw for every step would cost a tenth of it.
        place = momentum.step % (n // size)
        order = jax.lax.cond(place == 0, lambda: jax.random.permutation(key, order), lambda: order)
        index = jax.lax.dynamic_slice_in_dim(order, place * size, size)
        R = operator.rows(index, x) - b[index]
        U = _solve_block(operator, index, R)
        z = momentum.theta * z.at[index].add(U)
        x = x.at[index].add(-U) - (size / (2 * n)) * z

        squared = jnp.sum(R**2, axis=0)
        momentum, worse = _observe(momentum, squared[0], half_window=round(n / size) + 1)
        z = jnp.where(worse, jnp.zeros_like(z), z)
        return BlockState(x, z, momentum, order), (n / size) * squared

    def weights(self, state: BlockState) -> Columns:
        return state.x

    def passes_per_step(self, n: int) -> float:
        return self.block_size / n * (1 + self.block_size / n)

    def max_steps(self, n: int) -> int:
        return max(1, int(self.max_passes / self.passes_per_step(n)))

    def prepared(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[BlockDescent, float]:
        size = int(BLOCK_PER_ROOT_N * operator.n**0.5) if self.block_size == "auto" else self.block_size
        return replace(self, block_size=min(size, operator.n, LARGEST_BLOCK)), 0.0

    def slower(self) -> BlockDescent:
        return self  # it starts again from the last good iterate, without momentum

    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        return (
            f"a noise of {float(operator.noise):.2g} is too small for products in {operator.dtype}. "
            "Raise the noise, or pass float64 inputs with dtype=float64."
        )


def _solve_block(operator: Operator, index: Indices, R: Float[Array, "batch s"]) -> Float[Array, "batch s"]:
    """A[I, I]^-1 R. In float64 even if the rest is not: a block with little noise is not definite in float32."""
    factor = jax.scipy.linalg.cho_factor(operator.block(index, jnp.float64), lower=True)
    return jax.scipy.linalg.cho_solve(factor, R.astype(jnp.float64)).astype(R.dtype)


def _observe(momentum: Momentum, squared: Float[Array, ""], half_window: int) -> tuple[Momentum, Bool[Array, ""]]:
    """Add ||R||^2 to the window; at its end, set theta from the fall between its halves.

    With a_t = t^(ln t), the running ratio is an average of the windows' in which recent ones count most:
    ratio <- ratio * a_old / a_new + min(1, late / early) * (1 - a_old / a_new);   rho = 1 - ratio^(1 / half_window);
    theta = (1 - rho) / (1 + rho). Also says whether the residual grew so much that momentum must be dropped.
    """
    step, early, late, ratio, _ = momentum
    phase = step % (2 * half_window)
    early = early + jnp.where(phase < half_window, squared, 0.0)
    late = late + jnp.where(phase >= half_window, squared, 0.0)
    complete = phase == 2 * half_window - 1

    log_old, log_new = (jnp.log(jnp.maximum(t, 1).astype(ratio.dtype)) for t in (step + 1 - 2 * half_window, step + 1))
    kept = jnp.exp(log_old**2 - log_new**2)
    ratio_now = ratio * kept + jnp.minimum(1.0, late / jnp.maximum(early, jnp.finfo(early.dtype).tiny)) * (1.0 - kept)
    rho = jnp.maximum(0.0, 1.0 - ratio_now ** (1.0 / half_window))
    after = Momentum(step + 1, jnp.zeros_like(early), jnp.zeros_like(late), ratio_now, (1.0 - rho) / (1.0 + rho))
    before = momentum._replace(step=step + 1, early=early, late=late)
    return jax.tree.map(lambda new, old: jnp.where(complete, new, old), after, before), complete & (late > 4.0 * early)
