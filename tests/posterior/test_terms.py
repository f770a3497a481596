"""The posterior of one term of a sum of kernels, against the dense formula."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import NOISE, SEEDS, data, gram, points, relative, shifted_gram
from dualgp.posterior.terms import additive_terms

TREND, DETAIL = dg.Linear(2.0, 0.7) + dg.Constant(0.5), dg.Matern32(0.6, 0.8)
KERNEL = TREND + DETAIL
X_NEW = points(40, seed=7)


def posterior(kernel=KERNEL, n=250, **settings):
    x, y = data(n)
    model = dg.GaussianProcess(kernel, NOISE, mean=0.7)
    return x, y, model.condition(x, y, key=jax.random.key(0), **settings)


def dense(kernel, term, x, y):
    """Mean and standard deviation of a term: k_t A^-1 (y - mean), k_t(x, x) - k_t A^-1 k_t."""
    cross = gram(term, x, X_NEW)
    half = np.linalg.solve(shifted_gram(kernel, x), cross)
    return half.T @ (y - 0.7), np.sqrt(np.diagonal(gram(term, X_NEW)) - np.einsum("ij,ij->j", cross, half))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_exact_terms_have_the_mean_and_deviation_of_the_dense_formula(place):
    x, y, post = posterior(num_samples=0)
    mean, std = post.term(place).predict(X_NEW)
    expected = dense(KERNEL, additive_terms(KERNEL)[place], x, y)
    np.testing.assert_allclose(mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(std, expected[1], atol=1e-8)
    np.testing.assert_array_equal(post.term(place).mean(X_NEW), mean)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_sampled_terms_are_as_near_as_their_solution_and_samples_allow(place):
    x, y, post = posterior(solver=dg.BlockDescent(tol=1e-4), num_samples=512, num_features=2048)
    mean, std = post.term(place).predict(X_NEW)
    expected = dense(KERNEL, additive_terms(KERNEL)[place], x, y)
    assert relative(mean - expected[0], expected[0]) < 5e-3
    np.testing.assert_allclose(std, expected[1], rtol=4.5 / np.sqrt(2 * 512))


@pytest.mark.parametrize("kernel", [KERNEL, 1.5 * (TREND + DETAIL) + dg.On(dg.RBF(0.5) + dg.Laplace(), 1)])
@pytest.mark.parametrize("solver", [dg.Cholesky(), dg.CG()], ids=["exact", "iterative"])
def test_means_and_functions_of_all_terms_add_up(kernel, solver):
    _, _, post = posterior(kernel, solver=solver, num_samples=3)
    terms = [post.term(place) for place in range(len(additive_terms(kernel)))]
    assert len(terms) >= 3
    np.testing.assert_allclose(0.7 + sum(term.mean(X_NEW) for term in terms), post.mean(X_NEW), atol=2e-4)
    np.testing.assert_allclose(0.7 + sum(term.samples(X_NEW) for term in terms), post.samples(X_NEW), atol=2e-4)


def test_a_product_with_a_sum_is_one_term_with_features_of_its_own():
    product = (dg.RBF(0.8) + dg.Constant(0.3)) * dg.Matern12(2.0)
    _, _, post = posterior(dg.Linear(2.0) + product, solver=dg.CG(), num_samples=3)
    line, rest = (post.term(place).samples(X_NEW) for place in (0, 1))
    np.testing.assert_allclose(0.7 + line + rest, post.samples(X_NEW), atol=2e-4)
    points_on_a_line = np.outer([0.0, 1.0, 2.0], [1.0, -1.0, 0.5])
    values = post.term(0).samples(points_on_a_line)
    np.testing.assert_allclose(values, values[:, 1:2] * [0.0, 1.0, 2.0], atol=1e-4)


def test_a_term_is_named_by_itself_an_equal_one_or_its_number():
    _, _, post = posterior(num_samples=0)
    expected = post.term(2).mean(X_NEW)
    for term in (DETAIL, dg.Matern32(0.6, 0.8), post.model.kernel.right, np.int64(2)):
        np.testing.assert_array_equal(post.term(term).mean(X_NEW), expected)
    for other in (dg.Matern32(0.7, 0.8), 3, -1, "trend", True):
        with pytest.raises(ValueError, match=r"no term .* 0: Linear.* 2: Matern32"):
            post.term(other)


def test_terms_without_samples_say_what_to_do():
    _, _, post = posterior(solver=dg.CG(), num_samples=0, neighbours=0)
    assert post.term(0).mean(X_NEW).shape == (40,)
    with pytest.raises(ValueError, match="num_samples=16"):
        post.term(0).std(X_NEW)


@pytest.mark.parametrize("seed", SEEDS)
def test_trend_and_detail_that_made_the_data_are_found(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-3, 3, 400))[:, None]
    line, wave = 1.5 * x[:, 0], np.sin(6.0 * x[:, 0])
    y = line + wave + 0.1 * rng.normal(size=400)
    kernel = dg.Linear(1.0, 4.0) + dg.RBF(0.3)
    post = dg.GaussianProcess(kernel, 0.01).condition(x, y, num_samples=0)
    for place, truth in enumerate((line, wave)):
        mean, std = post.term(place).predict(x)
        assert np.abs(mean - truth).max() < 0.6
        assert (np.abs(mean - truth) < 4.5 * std + 1e-9).all()


def test_terms_may_be_differentiated_and_jitted():
    _, _, post = posterior(solver=dg.CG(), num_samples=3)
    term = post.term(2)
    slope = jax.grad(lambda x: term.mean(x[None])[0])(np.float32(X_NEW[0]))
    assert np.isfinite(slope).all() and np.abs(slope).max() > 0
    mean, std = jax.jit(term.predict)(np.float32(X_NEW))
    np.testing.assert_allclose(mean, term.mean(X_NEW), atol=1e-3)
    assert std.shape == (40,)
