"""The learned parameters of a model as one unconstrained vector.

Parameters are the array leaves of the model: the kernel's and the noise by their logarithms (they are positive), the
mean in units of the standard deviation of y. A kernel needs no declaration beyond being a module with array leaves.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._types import AnyArray
from dualgp.gp import GaussianProcess

Vector = Float[np.ndarray, " free"]

LIMIT = 16.0  # in logarithms, from the start and the data's scale: a lengthscale 9 million times the data is infinite
LEAST_NOISE = 1e-6  # relative to the variance of y: below, float64 factorisations of near points fail


class Parameters(eqx.Module):
    """Which numbers of `template` are free, and the conversion between models and vectors."""

    template: GaussianProcess
    values: Float[np.ndarray, " all"]
    free: np.ndarray  # indices into values
    is_mean: np.ndarray  # for each free number, whether it is the mean
    scale: Float[np.ndarray, ""]  # the unit of the mean: an array, so that data of another scale share programs

    def __init__(self, template: GaussianProcess, fixed: Sequence[str] = (), scale: float = 1.0) -> None:
        self.template, self.scale = template, np.asarray(scale, np.float64)
        names = entry_names(template)
        fixed = (fixed,) if isinstance(fixed, str) or not isinstance(fixed, Iterable) else tuple(fixed)
        if not all(isinstance(name, str) for name in fixed):
            raise TypeError(f"fixed must be names of parameters, such as ['noise'], got {fixed!r}.")
        for name in fixed:
            if not any(_matches(entry, name) for entry in names):
                known = ", ".join(dict.fromkeys(entry.split("[")[0] for entry in names))
                raise ValueError(f"There is no parameter {name!r} to hold fixed. The model has {known}.")
        self.values = np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(template)])
        held = np.array([any(_matches(entry, name) for name in fixed) for entry in names])
        # An infinite lengthscale means that its input does not matter, and is not learned.
        self.free = np.flatnonzero(~held & np.isfinite(self.values))
        self.is_mean = np.array([names[i].partition("[")[0] == "mean" for i in self.free], bool)

    @property
    def names(self) -> list[str]:
        """One for each free number: 'kernel.lengthscale[2]', 'noise', ..."""
        names = entry_names(self.template)
        return [names[i] for i in self.free]

    @property
    def is_lengthscale(self) -> np.ndarray:
        """For each free number, whether it is a lengthscale."""
        return np.array([name.partition("[")[0].endswith("lengthscale") for name in self.names], bool)

    @property
    def start(self) -> Vector:
        """The vector of the template itself."""
        values = self.values[self.free]
        return np.where(self.is_mean, values / self.scale, np.log(np.where(self.is_mean, 1.0, values)))

    def model(self, vector: Float[AnyArray, " free"]) -> GaussianProcess:
        """The model with these parameters; differentiable in a JAX vector."""
        if isinstance(vector, jax.Array):
            learned = jnp.where(self.is_mean, vector * self.scale, jnp.exp(vector))
            values: Any = jnp.asarray(self.values).at[self.free].set(learned)
        else:
            values = self.values.copy()
            values[self.free] = np.where(self.is_mean, vector * self.scale, np.exp(vector))
        leaves, structure = jax.tree.flatten(self.template)
        places = np.cumsum([0] + [np.size(leaf) for leaf in leaves])
        parts = [values[i : i + np.size(leaf)].reshape(np.shape(leaf)) for i, leaf in zip(places, leaves, strict=False)]
        return jax.tree.unflatten(structure, parts)


def entry_names(model: GaussianProcess) -> list[str]:
    """The names of all numbers of a model."""
    paths = jax.tree_util.tree_flatten_with_path(model)[0]
    leaves = [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in paths]
    return [f"{name}[{i}]" if leaf.ndim else name for name, leaf in leaves for i in range(leaf.size)]


def _matches(entry: str, name: str) -> bool:
    """'noise' is noise; 'lengthscale' is every lengthscale, 'kernel.left.lengthscale' and its [0] only that one."""
    return entry == name or ("." + entry).endswith("." + name) or ("." + entry.split("[")[0]).endswith("." + name)
