"""Kernels of scikit-learn as ours and back."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as theirs

import dualgp as dg
from cases import gram, points
from dualgp.kernels.translate import translated

ONE, MANY = points(20, 1), points(20, 3)
CONSTANT = theirs.ConstantKernel


@pytest.mark.parametrize(
    ("kernel", "x"),
    [
        (theirs.RationalQuadratic(0.7, 1.6), MANY),
        (theirs.DotProduct(1.5), MANY),
        (theirs.DotProduct(0.0, "fixed"), MANY),
        (theirs.ExpSineSquared(0.8, 1.3), ONE),
        (CONSTANT(2.0) * theirs.DotProduct(0.5) + CONSTANT(0.3), MANY),
        (CONSTANT(2.0) * CONSTANT(0.3) + theirs.RBF([0.5, 1.0, 2.0]), MANY),
        (CONSTANT(2.0) * (theirs.RBF(0.5) + theirs.Matern(1.0, nu=0.5)) * theirs.RationalQuadratic(), MANY),
        (theirs.RBF(2.0) * theirs.ExpSineSquared(0.8, 1.3) + theirs.DotProduct(0.2), ONE),
    ],
    ids=str,
)
def test_kernels_of_scikit_learn_have_the_same_matrix_there_and_back(kernel, x):
    ours, white = translated(kernel, learning=False, d=x.shape[1])
    assert white is None
    np.testing.assert_allclose(gram(ours, x), kernel(x), atol=1e-12)
    np.testing.assert_allclose(ours.to_sklearn()(x), kernel(x), atol=1e-12)


def test_white_noise_may_be_scaled_and_nested():
    kernel = CONSTANT(2.0) * (theirs.RBF() + theirs.WhiteKernel(0.1)) + theirs.WhiteKernel(0.05)
    ours, white = translated(kernel)
    assert white == pytest.approx(0.25)
    np.testing.assert_allclose(ours.to_sklearn(white)(MANY), kernel(MANY), atol=1e-12)


def test_our_compositions_become_theirs():
    kernel = 1.7 * (dg.Matern52([0.5, 1.0, 2.0], 0.3) + dg.Linear(0.6, 0.9)) * dg.RationalQuadratic(0.8, 1.1, 2.0)
    np.testing.assert_allclose(kernel.to_sklearn()(MANY), gram(kernel, MANY), atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        dg.Laplace(),
        dg.Linear([1.0, 2.0]),
        dg.Linear(centre=1.0),
        dg.RationalQuadratic([1.0, 2.0]),
        dg.Periodic(period=[1.0, 2.0]),
        dg.Tanimoto() + dg.RBF(),
        dg.OnSphere(dg.RBF()),
    ],
    ids=repr,
)
def test_what_scikit_learn_cannot_say_is_refused(kernel):
    with pytest.raises(ValueError, match="no counterpart in scikit-learn"):
        kernel.to_sklearn()


def test_a_kernel_of_the_distance_s_sine_is_refused_for_many_inputs():
    # Theirs takes the sine of the Euclidean distance, ours one for each input.
    with pytest.raises(ValueError, match=r"no counterpart in dualgp.*Periodic and On"):
        translated(theirs.ExpSineSquared(), d=2)


def test_a_regressor_takes_and_learns_them():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, 120))[:, None]
    y = 2.0 + 0.5 * x[:, 0] + np.sin(2 * np.pi * x[:, 0]) + 0.1 * rng.normal(size=120)
    kernel = CONSTANT(1.0) * theirs.ExpSineSquared(1.0, 1.05) + theirs.DotProduct(1.0) + theirs.WhiteKernel(0.1)
    fitted = dg.GPRegressor(kernel, random_state=0).fit(x, y)
    assert fitted.noise_ == pytest.approx(0.01, rel=0.6)
    assert float(fitted.kernel_.left.period) == pytest.approx(1.0, rel=0.01)
    mean = fitted.predict(np.array([[8.25]]))
    assert mean[0] == pytest.approx(2.0 + 0.5 * 8.25 + 1.0, abs=0.25)
