"""A user's program, for mypy: never run. A line that must be refused has an ignore, which mypy reports if unused."""

from typing import assert_type

import jax
import numpy as np

import dualgp as dg

x, y, key = np.zeros((5, 2)), np.zeros(5), jax.random.key(0)
model = dg.GaussianProcess(dg.Matern32(), noise=0.1, mean=3)
dg.GaussianProcess(dg.Matern32(), "little")  # type: ignore[arg-type]
posterior = model.condition(x, y, solver=dg.BlockDescent(tol=1e-3), key=key)
model.condition(x, y, sovler="auto", key=key)  # type: ignore[call-arg]
assert_type(posterior, dg.Posterior)
assert_type(posterior.update(x, y, key=key), dg.Posterior)
