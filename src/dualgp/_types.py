"""Shape aliases: d input dimensions, s right-hand sides. Numbers of rows differ from argument to argument (`_`).

Points are floats, or bytes where a kernel works on counts.
"""

import jax
import numpy as np
from jaxtyping import Float, Int, Key, UInt8

AnyArray = jax.Array | np.ndarray

Points = Float[AnyArray, "_ d"] | UInt8[AnyArray, "_ d"]
Vector = Float[AnyArray, " _"]
Columns = Float[AnyArray, "_ s"]
Indices = Int[AnyArray, " batch"]
Scalar = Float[AnyArray, ""]
RandomKey = Key[jax.Array, ""] | jax.Array

__all__ = ["AnyArray", "Columns", "Indices", "Points", "RandomKey", "Scalar", "Vector"]
