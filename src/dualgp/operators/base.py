"""The interface of a matrix, as solvers see it."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import compiled, in_wide, is_traced
from dualgp._types import AnyArray, Columns, Indices, RandomKey
from dualgp.kernels import Features
from dualgp.operators.layout import Layout
from dualgp.operators.noise import Noise


class Operator(eqx.Module):
    """A symmetric positive definite n x n matrix A = K + diag(noise), known through its products.

    `layout` says on which devices columns live: a solver uses it to place the arrays that it makes.
    """

    noise: eqx.AbstractVar[Noise]
    layout: eqx.AbstractVar[Layout]

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The precision of its products."""

    @abstractmethod
    def rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        """A[index] @ v: `len(index) * n` kernel entries."""

    @abstractmethod
    def residual(self, index: Indices, v: Columns, b: Columns) -> Float[Array, "batch s"]:
        """A[index] @ v - b[index]."""

    @abstractmethod
    def columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        """A[:, index] @ u: the transpose of `rows`, for solvers that keep their residual."""

    @abstractmethod
    def block(self, index: Indices, dtype: Any = None) -> Float[Array, "batch batch"]:
        """A[index][:, index] for distinct indices, in another precision on request."""

    @abstractmethod
    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal of A."""

    @abstractmethod
    def largest_variance(self) -> float:
        """The largest entry of K's diagonal, for use outside `jax.jit`."""

    @abstractmethod
    def stretch(self) -> float:
        """The error of an entry of K from rounded coordinates, in units of eps times the largest entry; on the host."""

    @abstractmethod
    def product(self, v: Columns) -> Columns:
        """A @ v inside `jax.jit`: one pass over K, in blocks of rows."""

    @abstractmethod
    def dense(self) -> Float[np.ndarray, "n n"]:
        """A itself in float64, in the host's memory: 8 n^2 bytes."""

    @abstractmethod
    def coordinates(self) -> Float[AnyArray, "n c"]:
        """A point for each row such that near rows are strongly correlated. On the host; only speed depends on it."""

    @abstractmethod
    def check_rows(self, index: Indices, v: Columns, b: Columns) -> Float[np.ndarray, "batch s"]:
        """`residual` on the host, by the program that makes predictions: solutions are certified by it."""

    @abstractmethod
    def subset(self, index: Int[np.ndarray, " rows"]) -> "Operator":
        """The operator of these rows and columns alone."""

    @abstractmethod
    def fingerprint(self, *columns: Columns) -> Any:
        """A tree that identifies this matrix and these columns in checkpoints; it does not depend on the layout."""

    @abstractmethod
    def features(self, key: RandomKey, num: int) -> Features:
        """Random features of the kernel, for solvers that estimate K by them."""

    @abstractmethod
    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        """phi(x) for the n rows: E[phi(x) @ phi(x).T] = K."""

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.layout.n

    @property
    def noiseless(self) -> "Operator":
        """K alone."""
        return eqx.tree_at(lambda operator: operator.noise, self, Noise(np.zeros(())))

    def __matmul__(self, v: AnyArray) -> AnyArray:
        """A @ v. Outside `jax.jit`, v may be a NumPy array or a vector."""
        return self.product(v) if is_traced(self, v) else _matmul(self, v)


@in_wide
def _matmul(operator: Operator, v: AnyArray) -> np.ndarray:
    columns = operator.layout.place(np.asarray(v).reshape(operator.n, -1), operator.dtype)
    return operator.layout.collect(_product(operator, columns)).reshape(np.shape(v))


@compiled
def _product(operator: Operator, v: Columns) -> Columns:
    return operator.product(v)
