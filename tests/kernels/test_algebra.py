"""Sums, products and multiples of kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import gram, points

A, B, C = dg.RBF(0.7, 1.2), dg.Matern12([0.5, 1.0, 2.0], 0.4), dg.Matern52(1.3, 0.9)
X1, X2 = points(12), points(9, seed=1)


def matrix(kernel):
    return gram(kernel, X1, X2)


def test_a_sum_adds_entries():
    np.testing.assert_allclose(matrix(A + B), matrix(A) + matrix(B), rtol=1e-14)


def test_a_product_multiplies_entries():
    np.testing.assert_allclose(matrix(A * B), matrix(A) * matrix(B), rtol=1e-14)


def test_a_number_scales_from_either_side():
    np.testing.assert_allclose(matrix(2.5 * A), 2.5 * matrix(A), rtol=1e-14)
    np.testing.assert_allclose(matrix(A * 2.5), 2.5 * matrix(A), rtol=1e-14)


def test_products_distribute_over_sums():
    np.testing.assert_allclose(matrix((A + B) * C), matrix(A * C + B * C), rtol=1e-13)


def test_nested_compositions_show_their_formula():
    assert repr(2.0 * (A + C)) == f"2 * ({A!r} + {C!r})"
    assert repr((A + C) * B) == f"({A!r} + {C!r}) * {B!r}"


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_must_be_positive_and_finite(scale):
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        scale * A


def test_a_kernel_is_scaled_by_one_number():
    with pytest.raises(ValueError, match="scaled by one number"):
        A * np.ones(3)


def test_a_number_cannot_be_added_to_a_kernel():
    with pytest.raises(TypeError):
        A + 1.0


def test_hyperparameters_of_a_composition_are_differentiable():
    x = points(8, dtype=np.float32)
    total = lambda kernel: jnp.sum(kernel(x, x))
    kernel = jax.tree.map(jnp.float32, 2.0 * (A + B) * C)
    gradient = jax.grad(total)(kernel)
    step = 1e-2
    moved = jax.tree.map(lambda leaf, slope: leaf + step * slope / 100, kernel, gradient)
    squares = sum(float(jnp.sum(g**2)) for g in jax.tree.leaves(gradient))
    np.testing.assert_allclose(total(moved) - total(kernel), step * squares / 100, rtol=0.1)
