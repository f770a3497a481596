"""A user's program, for mypy: never run. A line that must be refused has an ignore, which mypy reports if unused."""

from typing import assert_type

import jax
import numpy as np

import dualgp as dg

dg.Matern32(0.7)
dg.Matern52(np.ones(3), 1)
dg.RBF(lengthscale=[0.5, 2], variance=np.float32(2.0))
dg.Laplace([0.5, 2.0]) + dg.Linear(1.0, centre=[0.0, 3.0]) * dg.Periodic(0.5, period=2) + dg.Constant(0.3)
dg.Linear(centre=np.zeros(2))
dg.OnSphere(dg.RationalQuadratic(power=0.5), columns=(2, 0), radius=1)
dg.RBF("long")  # type: ignore[arg-type]
dg.RBF(scale=2.0)  # type: ignore[call-arg]
assert_type(dg.RBF(0.7).lengthscale, jax.Array | np.ndarray)
assert_type(dg.Tanimoto(0.9) + 2.0 * dg.On(dg.Matern12(jax.numpy.ones(2)), 0, 2), dg.Kernel)
