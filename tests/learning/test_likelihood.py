"""The exact likelihood, its gradient and its information."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dualgp as dg
from cases import KERNELS, data, inputs
from dualgp.learning.likelihood import as_group, information, likelihood_and_gradient
from dualgp.learning.parameters import Parameters


@pytest.mark.parametrize("name", KERNELS)
def test_value_and_gradient_are_those_of_the_gaussian_density(name):
    x, y = data(40)
    x = inputs(KERNELS[name], x)
    model = dg.GaussianProcess(KERNELS[name], noise=0.2, mean=0.3)
    covariance = dg.KernelOperator(model.kernel, x, 0.2).dense()
    expected = multivariate_normal(np.full(40, 0.3), covariance).logpdf(y)
    assert dg.learning.log_likelihood(model, x, y) == pytest.approx(expected, rel=1e-9)

    parameters, group = Parameters(model), as_group(x, y)
    value, gradient = likelihood_and_gradient(parameters, parameters.start, group)
    assert value == pytest.approx(expected, rel=1e-9)
    for i, shift in enumerate(1e-5 * np.eye(len(gradient))):
        above, below = (
            likelihood_and_gradient(parameters, parameters.start + sign * shift, group)[0] for sign in (1, -1)
        )
        assert gradient[i] == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-6)


def test_information_is_the_covariance_of_the_gradient():
    x, _ = data(20)
    model = dg.GaussianProcess(dg.Matern52([0.8, 1.5, 2.0], 1.2), noise=0.3, mean=0.5)
    parameters = Parameters(model)
    root = np.linalg.cholesky(dg.KernelOperator(model.kernel, x, 0.3).dense())
    draws = 0.5 + np.random.default_rng(0).normal(size=(3000, 20)) @ root.T
    scores = [likelihood_and_gradient(parameters, parameters.start, as_group(x, y))[1] for y in draws]
    expected = information(parameters, parameters.start, as_group(x, draws[0]))
    spread = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(np.cov(np.transpose(scores)) / spread, expected / spread, atol=0.1)
