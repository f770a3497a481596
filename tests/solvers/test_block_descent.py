import jax
import numpy as np
import pytest

import dualgp as dg
from cases import NOISE, data, points, relative, shifted_gram
from dualgp._arrays import wide
from dualgp.solvers.block_descent import BlockDescent, PreparedBlockDescent

KEY = jax.random.key(0)


@pytest.mark.parametrize("local", [0.0, 0.5, 0.75])
@pytest.mark.parametrize(("n", "size"), [(50, 1), (50, 2), (53, 20), (53, 53)])
def test_a_block_never_holds_a_point_twice_and_an_epoch_holds_all(n, size, local):
    solver = PreparedBlockDescent(BlockDescent(block_size=size, local=local), size)
    blocks = solver._cut(points(n), solver._num_groups(n), np.random.default_rng(0))
    assert all(len(set(block)) == size and block.min() >= 0 and block.max() < n for block in blocks)
    if solver._group_size:
        assert set(range(n)) == set(np.concatenate([block[: solver._group_size] for block in blocks]))


def test_the_error_in_the_norm_of_the_matrix_falls_with_every_step():
    x, y = data(200)
    A = shifted_gram(dg.Matern32(1.0), x)
    exact, operator = np.linalg.solve(A, y), dg.KernelOperator(dg.Matern32(1.0), x, NOISE)
    energies = []
    for steps in range(1, 12):
        solver = BlockDescent(block_size=40, tol=0.0)
        passes = (steps + 0.5) * PreparedBlockDescent(solver, 40).passes_per_step(200)
        error = dg.solve(operator, y, solver, key=KEY, max_passes=passes).weights - exact
        energies.append(error @ A @ error)
    assert (np.diff(energies) < 0).all()


def test_neighbours_are_what_makes_it_fast():
    # Little noise and short lengthscales: the weights of near points depend strongly on each other.
    x, y = data(2000, d=2)
    operator = dg.KernelOperator(dg.Matern32(0.3), x, 1e-3)
    passes = [
        dg.solve(operator, y, dg.BlockDescent(local=local, block_size=128, tol=1e-2), key=KEY).passes
        for local in (0.0, 0.75)
    ]
    assert passes[1] < 0.5 * passes[0]


def solve_with_hardly_any_noise(kernel, noise):
    """y is far from what such a model expects: with noise 1e-6 the weights of a smooth kernel are beyond float32."""
    x, y = data(3000, d=3, dtype=np.float32)
    solution = dg.solve(dg.KernelOperator(kernel, x, noise), y, dg.BlockDescent(), key=KEY, max_passes=40)
    y = y.astype(np.float64)
    return solution, relative(y - shifted_gram(kernel, x, noise=noise) @ solution.weights.astype(np.float64), y)


@pytest.mark.parametrize(
    ("kernel", "noise"), [(dg.Matern32(0.5), 1e-6), (dg.RBF(0.7), 1e-3)], ids=["rough", "smooth with more noise"]
)
def test_hardly_any_noise_in_float32_converges_truly(kernel, noise):
    solution, true = solve_with_hardly_any_noise(kernel, noise)
    assert solution.result is dg.Result.CONVERGED
    assert true <= 1e-2


def test_a_smooth_kernel_with_hardly_any_noise_says_so_and_is_no_worse_than_zero_weights():
    solution, true = solve_with_hardly_any_noise(dg.RBF(0.7), 1e-6)
    assert solution.result is dg.Result.DIVERGED
    assert "noise of 1e-06 is too small for products in float32. Raise the noise" in solution.message
    assert true <= min(1.0 + 1e-6, solution.residual_upper[0])


@pytest.mark.parametrize("d", [3, 12])
def test_a_row_far_away_keeps_no_one_from_converging(d):
    x, y = data(3000, d=d, dtype=np.float32)
    x[0] = -9999.0
    operator = dg.KernelOperator(dg.Matern32(0.5 * d**0.5), x, 1e-4, memory=0)
    solution = dg.solve(operator, y, dg.BlockDescent(), key=KEY, max_passes=30)
    assert solution.result is dg.Result.CONVERGED


def test_a_matrix_without_inputs_is_solved_too():
    x, y = data(500)
    A = shifted_gram(dg.Matern32(1.0), x)
    with wide():
        operator = dg.operators.DenseOperator(A - NOISE * np.eye(500), NOISE)
        solution = dg.solve(operator, y, dg.BlockDescent(tol=1e-4), key=KEY)
    assert solution.result is dg.Result.CONVERGED
    assert relative(y - A @ solution.weights, y) <= 1e-4


def test_a_share_beyond_the_block_is_refused():
    with pytest.raises(ValueError, match="local must be at least 0 and below 1"):
        dg.BlockDescent(local=1.0)


@pytest.mark.parametrize(
    ("noise", "dtype", "expected"),
    [(0.1, np.float32, "float32"), (1e-4, np.float32, "float64"), (0.1, np.float64, "float64")],
)
def test_blocks_are_narrow_where_the_noise_allows(noise, dtype, expected):
    x, y = data(1000, dtype=dtype)
    operator = dg.KernelOperator(2.0 * dg.Matern32(1.0), x, noise)
    with wide():
        assert BlockDescent().prepare(operator, y[:, None], KEY)[0].settings.block_dtype == expected
        assert (
            BlockDescent(block_dtype="float64").prepare(operator, y[:, None], KEY)[0].settings.block_dtype == "float64"
        )


def test_narrow_blocks_take_as_many_passes_and_lead_to_the_same_answer():
    x, y = data(3000, dtype=np.float32)
    noise = 3e-3  # the least that the rule allows with blocks of this size is 5e-4
    operator = dg.KernelOperator(dg.Matern32(1.0), x, noise)
    narrow, broad = (
        dg.solve(operator, y, BlockDescent(block_dtype=dtype, tol=1e-3), key=KEY) for dtype in ("float32", "float64")
    )
    assert narrow.result is broad.result is dg.Result.CONVERGED
    assert narrow.passes <= 1.2 * broad.passes
    assert relative(y - shifted_gram(dg.Matern32(1.0), x, noise=noise) @ narrow.weights, y) <= 1e-3


def test_after_a_divergence_blocks_are_solved_in_float64():
    prepared = PreparedBlockDescent(BlockDescent(block_size=10, block_dtype="float32"), 10)
    assert prepared.slower().settings.block_dtype == "float64"
    x, y = data(2000, d=1, dtype=np.float32)
    operator = dg.KernelOperator(dg.RBF(1.0), x, 1e-6)
    solution = dg.solve(operator, y, BlockDescent(block_dtype="float32"), key=KEY, max_passes=20)
    assert solution.solver.block_dtype == "float64"
    assert np.isfinite(solution.weights).all()


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match='block_dtype must be "auto", "float32" or "float64"'):
        BlockDescent(block_dtype="float16")
