"""The Laplace kernel: a product over the inputs, rough along each."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dualgp._types import AnyArray, Points, RandomKey
from dualgp.kernels.distances import absolute_distances
from dualgp.kernels.features import Features, FourierFeatures
from dualgp.kernels.frequencies import draw_frequencies, independent
from dualgp.kernels.scaled import Scaled


class Laplace(Scaled):
    """``variance * exp(-sum_j |x_j - x'_j| / lengthscale_j)``: distances in the 1-norm, along axes as trees see them.

    With one input it is Matern12. An infinite lengthscale means that the input does not matter.
    Frequencies: a Cauchy variable for each input, independent.
    """

    def against(self, x1: Points, x2: Points, careful: bool = False) -> Callable[[Points], Float[Array, "n1 tile"]]:
        coordinates = self.scaled(x1)

        def block(tile: Points) -> Float[Array, "n1 tile"]:
            profile = jnp.exp(-absolute_distances(coordinates, self.scaled(tile)))
            return jnp.asarray(self.variance, profile.dtype) * profile

        return block

    def features(self, key: RandomKey, num_features: int, d: int) -> Features:
        omega, weights = draw_frequencies(independent(_cauchy_size), key, max(1, num_features // 2), d)
        return FourierFeatures(omega / self.lengthscales, weights, self.variance)

    def coordinates(self, x: Points) -> Float[AnyArray, "n c"]:
        return self.scaled(x)


def _cauchy_size(tails: np.ndarray) -> np.ndarray:
    return 1.0 / np.tan(0.5 * np.pi * tails)
