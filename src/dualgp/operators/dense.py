"""A matrix that is in memory."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._arrays import as_parameter
from dualgp._types import AnyArray, Columns, Indices, RandomKey
from dualgp.kernels import Features
from dualgp.operators.base import Operator

COORDINATE_COLUMNS = 32


class DenseOperator(Operator):
    """A = K + noise * I for a matrix K that is in memory."""

    matrix: Float[AnyArray, "n n"]
    noise: AnyArray = eqx.field(default=0.0, converter=as_parameter)

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    def kernel_rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        return jnp.asarray(self.matrix)[index] @ v

    def kernel_columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        return jnp.asarray(self.matrix)[index].T @ u

    def kernel_block(
        self, rows: Int[AnyArray, " rows"], columns: Int[AnyArray, " columns"], dtype: Any = None
    ) -> Float[Array, "rows columns"]:
        return jnp.asarray(self.matrix)[rows[:, None], columns].astype(dtype or self.dtype)

    def kernel_diagonal(self) -> Float[Array, " n"]:
        return jnp.diagonal(jnp.asarray(self.matrix))

    def features(self, key: RandomKey, num: int) -> Features:
        raise TypeError("A matrix has no random features. Use a KernelOperator, or a solver that needs none.")

    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        raise TypeError("A matrix has no random features. Use a KernelOperator, or a solver that needs none.")

    def coordinates(self) -> Float[Array, "n c"]:
        # Correlated rows have similar entries; a few columns of the matrix show it.
        columns = np.linspace(0, self.n - 1, min(self.n, COORDINATE_COLUMNS)).round().astype(np.int32)
        return jnp.asarray(self.matrix)[:, columns]

    def part(self, index: Int[np.ndarray, " rows"]) -> "DenseOperator":
        return DenseOperator(self.matrix[index][:, index], self.noise)

    def dense(self) -> Float[np.ndarray, "n n"]:
        matrix = np.array(self.matrix, np.float64)
        np.fill_diagonal(matrix, matrix.diagonal() + float(self.noise))
        return matrix
