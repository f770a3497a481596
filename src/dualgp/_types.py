"""Shape aliases: d inputs, s right-hand sides; `_` is a number of rows, which may differ between arguments.

Points are floats, or bytes where a kernel works on counts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:

    class Parameter:
        """A field with `converter=as_parameter`: set to a number or a list, read as an array."""

        def __get__(self, instance: Any, owner: Any = None) -> AnyArray: ...

        def __set__(self, instance: Any, value: float | np.number | Sequence[float] | AnyArray) -> None: ...

else:
    Parameter = AnyArray

__all__ = ["AnyArray", "Columns", "Indices", "Parameter", "Points", "RandomKey", "Scalar", "Vector"]
