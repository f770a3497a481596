import jax
import numpy as np
import pytest

import dualgp as dg
from cases import NOISE, data, gram, relative, shifted_gram
from dualgp._arrays import wide

KERNEL = dg.RBF(2.0)


@pytest.mark.parametrize("random", [False, True])
def test_pivoted_cholesky_explains_a_smooth_kernel_and_inverts_its_own_matrix(random):
    x, y = data(300)
    operator = dg.KernelOperator(KERNEL, x, NOISE)
    with wide():
        P = dg.PivotedCholesky(rank=100, random=random)(operator, jax.random.key(0))
        applied = np.asarray(P(y[:, None]))[:, 0]
    F = np.asarray(P.F)
    assert 0 <= np.trace(gram(KERNEL, x) - F @ F.T) < 1e-2 * np.trace(gram(KERNEL, x))
    np.testing.assert_allclose(applied, np.linalg.solve(F @ F.T + NOISE * np.eye(300), y), rtol=1e-6, atol=1e-8)


def test_pivots_are_the_points_explained_least():
    x = np.array([[0.0], [0.1], [5.0], [5.1], [10.0]])
    with wide():
        F = np.asarray(dg.PivotedCholesky(rank=3)(dg.KernelOperator(dg.RBF(1.0), x, 0.1), jax.random.key(0)).F)
    # One pivot in each group: every point is explained almost wholly.
    assert (1.0 - (F**2).sum(axis=1) < 0.02).all()


def test_a_preconditioner_saves_iterations():
    x, y = data(1000)
    operator = dg.KernelOperator(KERNEL, x, 1e-3)
    steps = [
        dg.solve(operator, y, dg.CG(preconditioner=p, tol=1e-6), key=jax.random.key(0)).steps
        for p in (None, dg.PivotedCholesky(rank=20), dg.PivotedCholesky(rank=200, random=True))
    ]
    assert steps[2] < steps[1] < steps[0]


def test_columns_that_have_converged_stand_still_while_others_go_on():
    x, y = data(300)
    matrix = shifted_gram(KERNEL, x)
    b = np.stack([matrix[:, 0] * 0.0, y, matrix @ np.ones(300)], axis=1)
    solution = dg.solve(dg.KernelOperator(KERNEL, x, NOISE), b, dg.CG(tol=1e-8), key=jax.random.key(0))
    assert (solution.weights[:, 0] == 0).all()
    assert relative(solution.weights - np.linalg.solve(matrix, b), solution.weights) < 1e-6


def test_float32_that_cannot_go_further_says_so_and_returns_its_best():
    x, _ = data(800, d=2, dtype=np.float32)
    matrix = shifted_gram(dg.RBF(1.0), x, noise=1e-6)
    y = (matrix @ np.cos(np.arange(800.0))).astype(np.float32)
    solution = dg.solve(
        dg.KernelOperator(dg.RBF(1.0), x, 1e-6), y, dg.CG(tol=1e-7, max_iterations=600), key=jax.random.key(0)
    )
    sentences = {dg.Result.DIVERGED: "too ill-conditioned for float32", dg.Result.STALLED: "float32 goes no further"}
    assert sentences[solution.result] in solution.message
    assert relative(y - matrix @ solution.weights.astype(np.float64), y) < 0.1


@pytest.mark.parametrize("solver", [dg.CG(tol=1e-7), dg.BlockDescent(tol=1e-7)], ids=type)
def test_a_tolerance_below_the_rounding_of_float32_stalls_and_names_the_remedy(solver):
    x, y = data(800, d=2, dtype=np.float32)
    key = jax.random.key(0)
    solution = dg.solve(dg.KernelOperator(dg.RBF(1.0), x, 1e-2), y, solver, key=key)
    assert solution.result is dg.Result.STALLED
    assert "float32 goes no further. Pass dtype='float64'" in solution.message
    again = dg.solve(dg.KernelOperator(dg.RBF(1.0), x, 1e-2, dtype=np.float64), y, solver, key=key)
    assert again.result is dg.Result.CONVERGED


def test_what_an_unfinished_run_advises_depends_on_the_method():
    x, y = data(300)
    operator, key = dg.KernelOperator(KERNEL, x, NOISE), jax.random.key(0)
    assert "may be too narrow" in dg.solve(operator, y, dg.CG(tol=1e-12), key=key, max_passes=2).message
    assert (
        "accept wider"
        in dg.solve(operator, y, dg.BlockDescent(tol=1e-12, block_size=20), key=key, max_passes=2).message
    )


def test_cholesky_says_when_rounding_is_in_the_way():
    x, y = data(300)
    assert dg.solve(dg.KernelOperator(KERNEL, x, 1e-2), y, dg.Cholesky()).message.endswith("in float64.")
    x = np.random.default_rng(0).uniform(-3, 3, (300, 2))
    assert "relative residual" in dg.solve(dg.KernelOperator(dg.RBF(1.0), x, 1e-14), y, dg.Cholesky()).message
    single = dg.KernelOperator(
        dg.RBF(1.0), x, 1e-6, dtype=np.float32
    )  # its products cannot tell, the weights are right
    solution = dg.solve(single, y, dg.Cholesky())
    assert solution.residual.max() > 1e-4
    assert solution.message.endswith("in float64.")


@pytest.mark.parametrize("how", ["more far weights", "more rows"])
def test_a_posterior_is_refined_with_more_rows_than_its_preconditioner_was_made_for(how):
    x, y = data(200)
    model, new = dg.GaussianProcess(dg.Matern32(1.0), NOISE), slice(195 if how == "more rows" else 200, 200)
    num_far, run = 60 if how == "more far weights" else None, {"num_samples": 0, "key": jax.random.key(0)}
    some = model.condition(x[: new.start], y[: new.start], solver=dg.CG(tol=1e-6), neighbours=8, num_far=num_far, **run)
    post = some.update(x[new], y[new], key=run["key"]).refine(key=run["key"], num_far=200)
    assert some.num_far < post.num_far == 200
    np.testing.assert_allclose(post.mean(x), model.condition(x, y, **run).mean(x), atol=1e-4)
