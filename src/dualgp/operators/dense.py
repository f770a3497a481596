"""The operator of a matrix in memory."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dualgp._types import AnyArray, Columns, Indices, RandomKey
from dualgp.kernels import Features
from dualgp.operators.base import Operator
from dualgp.operators.layout import Local
from dualgp.operators.noise import Noise, as_noise

COORDINATE_COLUMNS = 32  # rows are alike if their entries in a few columns are


class DenseOperator(Operator):
    """A = K + diag(noise) for a matrix K in memory; `noise` is a variance, or one for each row."""

    matrix: Float[AnyArray, "n n"]
    noise: Noise
    layout: Local = eqx.field(static=True)

    def __init__(self, matrix: Float[AnyArray, "n n"], noise: Any) -> None:
        self.matrix, self.noise, self.layout = matrix, as_noise(noise, matrix.shape[0]), Local(matrix.shape[0])

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    def rows(self, index: Indices, v: Columns) -> Float[Array, "batch s"]:
        return jnp.asarray(self.matrix)[index] @ v + self.noise.diagonal(index, v.dtype)[:, None] * v[index]

    def residual(self, index: Indices, v: Columns, b: Columns) -> Float[Array, "batch s"]:
        return self.rows(index, v) - b[index]

    def columns(self, index: Indices, u: Float[AnyArray, "batch s"]) -> Float[Array, "n s"]:
        product = jnp.asarray(self.matrix)[index].T @ u
        return product.at[index].add(self.noise.diagonal(index, product.dtype)[:, None] * u)

    def block(self, index: Indices, dtype: Any = None) -> Float[Array, "batch batch"]:
        block = jnp.asarray(self.matrix)[index[:, None], index].astype(dtype or self.dtype)
        return block + jnp.diag(self.noise.diagonal(index, block.dtype))

    def diagonal(self) -> Float[Array, " n"]:
        return jnp.diagonal(jnp.asarray(self.matrix)) + self.noise.diagonal(jnp.arange(self.n), self.dtype)

    def largest_variance(self) -> float:
        return float(np.asarray(self.matrix).diagonal().max())

    def stretch(self) -> float:
        return 0.0

    def product(self, v: Columns) -> Columns:
        return jnp.asarray(self.matrix) @ v + self.noise.diagonal(jnp.arange(self.n), v.dtype)[:, None] * v

    def dense(self) -> Float[np.ndarray, "n n"]:
        matrix = np.array(self.matrix, np.float64)
        np.fill_diagonal(matrix, matrix.diagonal() + np.asarray(self.noise.variance, np.float64))
        return matrix

    def coordinates(self) -> Float[Array, "n c"]:
        columns = np.linspace(0, self.n - 1, min(self.n, COORDINATE_COLUMNS)).round().astype(np.int32)
        return jnp.asarray(self.matrix)[:, columns]

    def check_rows(self, index: Indices, v: Columns, b: Columns) -> Float[np.ndarray, "batch s"]:
        rows = np.asarray(self.matrix)[index] @ np.asarray(v) - np.asarray(b)[index]
        return rows + np.asarray(self.noise.diagonal(index, rows.dtype))[:, None] * np.asarray(v)[index]

    def subset(self, index: Int[np.ndarray, " rows"]) -> DenseOperator:
        return DenseOperator(self.matrix[index][:, index], self.noise.subset(index))

    def fingerprint(self, *columns: Columns) -> Any:
        return self, *columns

    def features(self, key: RandomKey, num: int) -> Features:
        raise TypeError("A matrix has no random features. Use a KernelOperator, or a solver that needs none.")

    def feature_matrix(self, features: Features) -> Float[Array, "n num"]:
        raise TypeError("A matrix has no random features. Use a KernelOperator, or a solver that needs none.")
