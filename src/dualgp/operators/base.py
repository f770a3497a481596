"""What a solver may ask of a matrix."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import compiled, is_traced, on_device, wide
from dualgp._types import AnyArray, Columns, Indices, RandomKey
from dualgp.kernels import Features
from dualgp.operators.tiles import in_row_blocks


class Operator(eqx.Module):
    """A symmetric positive definite n x n matrix A = K + noise * I, known through its products."""

    noise: eqx.AbstractVar[AnyArray]

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of rows."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The precision of its products."""

    @abstractmethod
    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        """K[index] @ v: `len(index) * n` kernel entries."""

    @abstractmethod
    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        """K[:, index] @ u: the transpose of `kernel_rows`."""

    @abstractmethod
    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        """The entries K[rows][:, columns], in another precision on request."""

    @abstractmethod
    def kernel_diagonal(self) -> Float[Array, " n"]:
        """The diagonal of K."""

    def largest_variance(self) -> float:
        """The largest entry of K's diagonal, for use outside `jax.jit`."""
        return float(jnp.max(self.kernel_diagonal()))

    @abstractmethod
    def features(self, key: RandomKey, num: int) -> Features:
        """Random features of the kernel, for methods that estimate K by them."""

    @abstractmethod
    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        """phi(x) for the n data: E[phi(x) @ phi(x).T] = K."""

    @abstractmethod
    def dense(self) -> Float[np.ndarray, "n n"]:
        """A itself in float64, in the host's memory: 8 n^2 bytes."""

    @abstractmethod
    def coordinates(self) -> Float[AnyArray, "n c"]:
        """A place for every row such that rows in near places are strongly correlated. Only speed depends on it.

        For use outside `jax.jit`.
        """

    @abstractmethod
    def part(self, index: Int[np.ndarray, " rows"]) -> "Operator":
        """The matrix of these rows and columns alone, by the same means."""

    def rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        """A[index] @ v."""
        return self.kernel_rows(index, v) + self._noise * v[index]

    def residual(self, index: Indices, v: Columns, b: Columns) -> Float[Array, "batch s"]:
        """A[index] @ v - b[index]."""
        return self.rows(index, v) - b[index]

    def residual_on_host(self, index: Indices, v: Columns, b: Columns) -> Float[np.ndarray, "batch s"]:
        """`residual`, for use outside `jax.jit`."""
        return np.asarray(_residual(self, index, v, b))

    def block(self, index: Indices, dtype: Any = None) -> Float[Array, "batch batch"]:
        """A[index][:, index], for distinct indices."""
        block = self.kernel_block(index, index, dtype)
        return block + jnp.asarray(self.noise, block.dtype) * jnp.eye(index.shape[0], dtype=block.dtype)

    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal of A."""
        return self.kernel_diagonal() + self._noise

    def __matmul__(self, v: AnyArray) -> AnyArray:
        """A @ v, in blocks of rows: one pass over K. For use outside `jax.jit`, v may be a NumPy array or a vector."""
        if is_traced(self, v):
            return in_row_blocks(lambda rows: self.rows(rows, v), self.n, v.shape[1], v.dtype)
        with wide():
            columns = jnp.asarray(v, self.dtype).reshape(self.n, -1)
            return np.asarray(_product(self, columns)).reshape(np.shape(v))

    # Where columns live. An operator on many devices spreads them, and has its own way for each of these.

    def holds(self, array: Any) -> bool:
        """Whether `array` is in its place already."""
        return False

    def place(self, array: AnyArray) -> Columns:
        """(n, s) columns where the solver shall have them, in the operator's precision."""
        return on_device(array, self.dtype)

    def settled(self, state: Any) -> Any:
        """A solver's state with every array where the steps will leave it, so that they are compiled once."""
        return state

    def collect(self, columns: AnyArray) -> np.ndarray:
        """The (n, s) columns in the host's memory."""
        return np.asarray(columns)

    @property
    def is_alone(self) -> bool:
        """Whether this process can do without others: then it may stop when it likes."""
        return True

    def agreed(self, seconds: float) -> float:
        """A time by the clock that decisions are made by: of many processes, the first one's."""
        return seconds

    def problem(self, *columns: Columns) -> Any:
        """What tells this matrix and these columns from others, wherever they live: for fingerprints."""
        return self, *columns

    @property
    def _noise(self) -> Float[Array, ""]:
        return jnp.asarray(self.noise, self.dtype)


@compiled
def _residual(operator: Operator, index: Indices, v: Columns, b: Columns) -> Float[Array, "batch s"]:
    return operator.residual(index, jnp.asarray(v), jnp.asarray(b))


@compiled
def _product(operator: Operator, v: Columns) -> Columns:
    return operator @ v
