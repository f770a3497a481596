"""Low-rank preconditioners P = F F^T + diag(noise) with F F^T close to K, from a few columns of K."""

from __future__ import annotations

from dataclasses import KW_ONLY

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dualgp._checks import check_count
from dualgp._types import AnyArray, Columns, RandomKey, Vector
from dualgp.operators import Operator


class Preconditioner(eqx.Module):
    """v -> P^-1 v = D v - D F (I + F^T D F)^-1 F^T D v with D = diag(1 / noise) (Woodbury)."""

    F: Float[AnyArray, "n k"]
    inner: Float[AnyArray, "k k"]  # Cholesky factor of I + F^T D F, in float64
    noise: Float[AnyArray, " n"]

    def __call__(self, v: Columns) -> Columns:
        scaled = v / self.noise[:, None]
        inside = jax.scipy.linalg.cho_solve((self.inner, True), (self.F.T @ scaled).astype(self.inner.dtype))
        return scaled - self.F @ inside.astype(v.dtype) / self.noise[:, None]


class PivotedCholesky(eqx.Module):
    """A partial Cholesky factorisation of K: `rank` columns, rank / n of a pass and O(n rank^2) operations.

    The next pivot is the point with the largest remaining diagonal entry (`random=False`, as in the paper), or a point
    drawn in proportion to these entries (`random=True`, RPCholesky, which is more robust to outliers).
    """

    _: KW_ONLY
    rank: int = 100
    random: bool = False

    def __check_init__(self) -> None:
        check_count(self.rank, "rank", 1)

    @eqx.filter_jit
    def __call__(self, operator: Operator, key: RandomKey) -> Preconditioner:
        rank, dtype = min(self.rank, operator.n), operator.dtype
        diagonal = operator.noiseless.diagonal()
        one = jnp.ones((1, 1), dtype)
        # A pivot below the rounding error of the diagonal would divide noise by noise.
        smallest = jnp.max(diagonal) * jnp.finfo(dtype).eps * 10.0

        def add_column(i: Array, carry: tuple[Array, Vector]) -> tuple[Array, Vector]:
            F, unexplained = carry
            if self.random:
                pivot = jax.random.categorical(jax.random.fold_in(key, i), jnp.log(unexplained))
            else:
                pivot = jnp.argmax(unexplained)
            height = unexplained[pivot]
            column = operator.noiseless.columns(pivot[None], one)[:, 0] - F @ F[pivot]
            column = jnp.where(height > smallest, column / jnp.sqrt(jnp.maximum(height, smallest)), 0.0)
            unexplained = jnp.maximum(unexplained - column**2, 0.0).at[pivot].set(0.0)
            return F.at[:, i].set(column), unexplained

        F, _ = jax.lax.fori_loop(0, rank, add_column, (jnp.zeros((diagonal.shape[0], rank), dtype), diagonal))
        noise = operator.noise.diagonal(jnp.arange(diagonal.shape[0], dtype=jnp.int32), jnp.float64)
        wide = F.astype(jnp.float64)
        gram = wide.T @ (wide / noise[:, None]) + jnp.eye(rank, dtype=jnp.float64)
        return Preconditioner(F, jnp.linalg.cholesky(gram), noise.astype(dtype))
