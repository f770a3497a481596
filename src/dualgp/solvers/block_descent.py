"""Block descent on neighbourhoods: no step size, because every block of equations is solved exactly.

A step solves the equations of a block I of points exactly, with all other weights held fixed:

    d = A[I, I]^-1 r[I],   x[I] += d,   r -= A[:, I] d

The residual r = b - A x of every row is known at all times: columns of A cost as much as rows.

The choice of the block decides the speed. Three quarters of I are neighbours of each other, because weights of near
points depend on each other most. The others come from all over the data, for slowly varying errors. Each epoch cuts the
data into new random neighbourhoods.

A step minimises 1/2 x^T A x - b^T x over x[I], so the error in the norm of A never grows. The blocks depend on the
inputs and the key alone, hence the variance of samples is never below the exact one, whenever the run is stopped.

Rows that are kept aside are in no block until they are taken in. Their predictions by near and far field decide when to
stop (validation.py).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dualgp._arrays import on_device
from dualgp._checks import check_count, check_positive_number, check_share
from dualgp._random import generator
from dualgp._types import AnyArray, Columns, Indices, RandomKey
from dualgp.operators import Operator
from dualgp.solvers.base import IterativeSolver, PerColumn, Prepared, check_tol
from dualgp.solvers.neighbourhoods import neighbourhoods
from dualgp.solvers.residual import residual_of

LARGEST_BLOCK = 6144  # n^(2/3) for 480,000 points; for 560,000 a pass with 6,800 takes 12 % longer than with 4,096
FEW_PASSES_TO = 1e-3  # the relative residual: on pol 5 to 7 passes to 1e-2 and 8 to 10 to 1e-3
# The largest relative error of the solution of a block in float32. On 30,000 rows of protein float32 takes a sixth less
# time at 0.04, with as many passes as float64 (10.1 to 1e-3); at 0.4 it stalls at a residual of 1.6e-2 instead of 6e-3.
NARROW_ERROR = 0.05


class BlockState(NamedTuple):
    """The iterate, its residual, the blocks of the epoch and the number of the next one."""

    x: Float[Array, "n s"]
    residual: Float[Array, "n s"]
    blocks: Int[Array, "groups block"]
    turn: Int[Array, ""]


class BlockDescent(IterativeSolver):
    """Blocks of neighbours solved exactly, without settings that need tuning.

    **Arguments:**

    - `block_size`: by default n^(2/3), at most 6,144: there a factorisation costs a fraction of the row product.
    - `local`: the fraction of a block that is one neighbourhood; its other rows come from all over the data.
    - `tol`: stop once the relative residual of every column is below this.
    - `max_passes`: the budget.
    - `block_dtype`: the precision of factorisations, "float32" or "float64"; by default float32 if the noise allows.

    A step costs `block_size * n` kernel entries and a Cholesky factorisation of a block.
    """

    _: KW_ONLY
    block_size: int | Literal["auto"] = "auto"
    local: float = 0.75
    tol: float = 1e-2
    max_passes: float = 200.0
    block_dtype: str = "auto"

    def __check_init__(self) -> None:
        if self.block_size != "auto":
            check_count(self.block_size, "block_size", 1)
        check_share(self.local, "local", ": it is a share of the block")
        check_positive_number(self.max_passes, "max_passes")
        if self.block_dtype not in ("auto", "float32", "float64"):
            raise ValueError(f'block_dtype must be "auto", "float32" or "float64", got {self.block_dtype!r}.')
        check_tol(self.tol)

    @property
    def takes_few_passes(self) -> bool:
        return self.tol >= FEW_PASSES_TO

    def prepare(self, operator: Operator, b: Columns, key: RandomKey) -> tuple[PreparedBlockDescent, float]:
        size = round(operator.n ** (2 / 3)) if isinstance(self.block_size, str) else self.block_size
        size = min(size, operator.n, LARGEST_BLOCK)
        dtype = _block_dtype(operator, size) if self.block_dtype == "auto" else self.block_dtype
        settings = replace(self, block_size=size, block_dtype=dtype)
        return PreparedBlockDescent(settings, size), 0.0


class PreparedBlockDescent(Prepared):
    """Block descent with a value for every setting."""

    settings: BlockDescent
    block_size: int
    aside: Bool[AnyArray, " n"] = eqx.field(default_factory=lambda: np.zeros(0, bool))

    start_passes: ClassVar[float] = 1.0

    def init(self, operator: Operator, b: Columns, start: Columns) -> BlockState:
        return self.init_at(operator, b, start, residual_of(operator, b, start))

    def init_at(self, operator: Operator, b: Columns, start: Columns, residual: Columns) -> BlockState:
        shape = (self._num_groups(operator.n), self.block_size)
        no_blocks = on_device(np.zeros(shape, np.int32), np.int32)
        return BlockState(jnp.asarray(start), jnp.asarray(residual), no_blocks, on_device(shape[0], np.int32))

    def keep_aside(self, rows: Bool[np.ndarray, " n"]) -> PreparedBlockDescent:
        return replace(self, aside=rows)

    def take_in(self, state: BlockState) -> tuple[PreparedBlockDescent, BlockState]:
        return replace(self, aside=np.zeros_like(self.aside)), state._replace(
            turn=on_device(len(state.blocks), np.int32)
        )

    def refresh(self, operator: Operator, state: BlockState, step: int, key: RandomKey) -> tuple[BlockState, int]:
        """Cut the blocks of the next epoch at the end of one. NumPy does it: XLA would compile for 0.7 s."""
        num_groups, turn = state.blocks.shape[0], int(state.turn)
        if turn == num_groups:
            rows = np.delete(np.arange(operator.n, dtype=np.int32), np.flatnonzero(self.aside))
            blocks = rows[self._cut(np.asarray(operator.coordinates())[rows], num_groups, generator(key, step))]
            state, turn = state._replace(blocks=on_device(blocks, np.int32), turn=on_device(0, np.int32)), 0
        return state, num_groups - turn

    def step(self, operator: Operator, b: Columns, state: BlockState, key: RandomKey) -> tuple[BlockState, PerColumn]:
        x, residual, blocks, turn = state
        index = blocks[turn]
        change = _solve_block(operator, index, operator.layout.everywhere(residual[index]), self.settings.block_dtype)
        x, residual = x.at[index].add(change), residual - operator.columns(index, change)
        # The loop uses the residual of the state: a norm in every step would be one more all-reduce.
        return BlockState(x, residual, blocks, turn + 1), jnp.zeros(x.shape[1], x.dtype)

    def weights(self, state: BlockState) -> Columns:
        return state.x

    def residuals(self, state: BlockState) -> Columns:
        return state.residual

    def passes_per_step(self, n: int) -> float:
        return self.block_size / n * (1 + self.block_size / n)

    def max_steps(self, n: int) -> int:
        return max(1, int(self.settings.max_passes / self.passes_per_step(n)))

    def slower(self) -> PreparedBlockDescent:
        # The loop continues from the last good iterate, with other blocks.
        return replace(self, settings=replace(self.settings, block_dtype="float64"))

    def explain_divergence(self, operator: Operator, key: RandomKey) -> str:
        return (
            f"a noise of {operator.noise.smallest:.2g} is too small for products in {operator.dtype}. "
            "Raise the noise, or pass float64 inputs with dtype=float64."
        )

    @property
    def _group_size(self) -> int:
        return min(round(self.settings.local * self.block_size), self.block_size - 1)

    def _num_groups(self, n: int) -> int:
        return -(-n // max(self._group_size, 1))

    def _cut(
        self, coordinates: Float[np.ndarray, "n c"], num_groups: int, rng: np.random.Generator
    ) -> Int[np.ndarray, "groups block"]:
        """The blocks of an epoch: the neighbourhoods in random order, each with points from all over the data.

        These are a random one of every `stride` points in the order of the tree. Near points are near in this order,
        so that they cover the data evenly.
        """
        n, near = len(coordinates), self._group_size
        far, others = self.block_size - near, n - near
        order = neighbourhoods(coordinates, max(near, 1), rng)
        blocks = np.empty((num_groups, near + far), np.int32)
        stride = others // far
        for block, group in zip(blocks, rng.permutation(len(blocks)).tolist(), strict=True):
            start = min(group * near, others)
            place = (rng.integers(others) + np.arange(far) * stride + rng.integers(stride, size=far)) % others
            block[:near] = order[start : start + near]
            block[near:] = order[np.where(place >= start, place + near, place)]
        return blocks


def _block_dtype(operator: Operator, size: int) -> str:
    """float64 if there is little noise: in float32 such a block is not positive definite.

    The eigenvalues of a block are at most `size` times its largest diagonal entry and at least the noise, so a solution
    in float32 has a relative error of about their ratio times 1e-7. An error slows the descent and biases nothing.
    """
    largest = size * operator.largest_variance()
    is_narrow = operator.dtype == jnp.float32
    error = float(jnp.finfo(jnp.float32).eps) * (1 + largest / operator.noise.smallest)
    return "float32" if is_narrow and error <= NARROW_ERROR else "float64"


def _solve_block(operator: Operator, index: Indices, R: Float[Array, "batch s"], dtype: str) -> Float[Array, "batch s"]:
    """A[I, I]^-1 R, factorised in `dtype`."""
    # The transpose of the symmetric block has the memory order of LAPACK: 17.4 instead of 19.4 ms for 1,357 rows.
    factor = jax.scipy.linalg.cho_factor(operator.block(index, dtype).T, lower=True)
    return jax.scipy.linalg.cho_solve(factor, R.astype(dtype)).astype(R.dtype)
