"""More data, beyond the number of rows up to which a solution is exact."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

import dualgp as dg
from cases import KERNELS, NOISE, data, gram, points, relative, shifted_gram
from dualgp.operators import policy

KERNEL, KEY = KERNELS["Matern32"], jax.random.key(0)
BEFORE, AFTER = policy.SOLVE_EXACTLY_UP_TO - 96, policy.SOLVE_EXACTLY_UP_TO + 204


@cache
def updated(dtype: type) -> dg.Posterior:
    x, y = data(AFTER, dtype=dtype)
    model = dg.GaussianProcess(KERNEL, NOISE)
    few = model.condition(x[:BEFORE], y[:BEFORE], num_samples=2, num_features=64, key=KEY)
    more = few.update(x[BEFORE:], y[BEFORE:], key=KEY)
    assert isinstance(few.solution.solver, dg.Cholesky) and not isinstance(more.solution.solver, dg.Cholesky)
    return more


def test_an_exact_posterior_updated_to_an_iterative_one_predicts_like_an_exact_one_of_all_rows():
    x, y = data(AFTER, dtype=np.float32)
    everywhere = np.concatenate([x, points(50, seed=7).astype(np.float32)])
    exact = gram(KERNEL, everywhere, x) @ cho_solve(cho_factor(shifted_gram(KERNEL, x)), y.astype(np.float64))
    error = np.abs(updated(np.float32).mean(everywhere) - exact)
    assert error.max() <= updated(np.float32).error_bound()
    assert relative(error[:AFTER], y) <= 1e-2  # ||K A^-1 r|| <= ||r||, and the residual r is at most that of y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_update_is_solved_in_the_precision_of_a_fresh_solve(dtype):
    expected = policy.choose_precision(np.zeros((1, 1), dtype), AFTER)
    assert updated(dtype).mean(points(5)).dtype == expected
    assert f"{expected} arithmetic" in updated(dtype).report()
