"""Shape aliases: n data, d input dimensions, s right-hand sides, m test points."""

import jax
import numpy as np
from jaxtyping import Float, Int, Key

AnyArray = jax.Array | np.ndarray

Points = Float[AnyArray, "n d"]
Vector = Float[AnyArray, " n"]
Columns = Float[AnyArray, "n s"]
Indices = Int[AnyArray, " batch"]
Scalar = Float[AnyArray, ""]
RandomKey = Key[jax.Array, ""] | jax.Array

__all__ = ["AnyArray", "Columns", "Indices", "Points", "RandomKey", "Scalar", "Vector"]
