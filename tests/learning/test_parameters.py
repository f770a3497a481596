"""The numbers of a model as one vector."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS
from dualgp._arrays import wide
from dualgp.learning.parameters import Parameters


@pytest.mark.parametrize("name", KERNELS)
def test_a_model_and_its_vector_are_the_same(name):
    model = dg.GaussianProcess(KERNELS[name], noise=0.3, mean=-1.5)
    parameters = Parameters(model, scale=2.0)
    again = parameters.model(parameters.start)
    for before, after in zip(jax.tree.leaves(model), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12)
    assert len(parameters.names) == sum(np.size(leaf) for leaf in jax.tree.leaves(model))


@pytest.mark.parametrize(
    ("fixed", "free"),
    [
        ((), 6),
        (("noise",), 5),
        ("mean", 5),
        (("lengthscale",), 3),
        (("kernel.lengthscale[1]", "variance"), 4),
        (("kernel", "noise", "mean"), None),
    ],
)
def test_what_is_fixed_is_the_users_choice(fixed, free):
    model = dg.GaussianProcess(dg.RBF([1.0, 2.0, 3.0]), noise=0.1)
    if free is None:
        with pytest.raises(ValueError, match=r"no parameter 'kernel' to hold fixed. The model has kernel.lengthscale"):
            Parameters(model, fixed)
    else:
        assert len(Parameters(model, fixed).names) == free


def test_an_infinite_lengthscale_is_not_a_parameter_and_leaves_finite_gradients():
    model = dg.GaussianProcess(dg.Matern32([1.0, np.inf]), noise=0.1)
    parameters = Parameters(model)
    assert parameters.names == ["kernel.lengthscale[0]", "kernel.variance", "noise", "mean"]
    with wide():
        x = jax.random.normal(jax.random.key(0), (5, 2), "float64")
        total = lambda vector: parameters.model(vector).kernel(x, x).sum()
        assert np.isfinite(jax.grad(total)(jax.numpy.asarray(parameters.start))).all()
