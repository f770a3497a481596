"""A = K + noise * I: every product against the dense matrix, K kept or computed on the fly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, gram, points, relative, shifted_gram
from dualgp._arrays import wide
from dualgp.operators import DenseOperator, policy, tiles

KERNEL = KERNELS["sum"]
N = 700  # more than one block of rows, more than one (smallest) tile, a multiple of neither
KEPT, STREAMED = None, 0
each_memory = pytest.mark.parametrize("memory", [KEPT, STREAMED], ids=["kept", "streamed"])
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(policy, "TILE_ENTRIES", 1)
    monkeypatch.setattr(policy, "TILE_ENTRIES_ON_ONE_CORE", 1)


@pytest.fixture(scope="module")
def dense():
    return shifted_gram(KERNEL, points(N))


def operator(memory, dtype=np.float64):
    return dg.KernelOperator(KERNEL, points(N, dtype=dtype), NOISE, memory=memory)


def columns(dtype, num=4):
    return jnp.asarray(np.random.default_rng(5).normal(size=(N, num)), dtype)


def tolerance(dtype):
    return {"rtol": 0, "atol": 1e-11 if dtype == np.float64 else 1e-3}


@each_memory
@each_dtype
def test_rows_equal_those_of_the_dense_matrix(memory, dtype, dense):
    index = np.array([3, 699, 3, 512, 0], np.int32)
    with wide():
        v = columns(dtype)
        product = jax.jit(lambda op: op.rows(jnp.asarray(index), v))(operator(memory, dtype))
    assert product.dtype == dtype
    np.testing.assert_allclose(product, dense[index] @ np.asarray(v, np.float64), **tolerance(dtype))


@each_memory
def test_a_residual_is_that_of_the_dense_matrix(memory, dense):
    index = np.array([3, 699, 3, 512, 0], np.int32)
    with wide():
        v, b = columns(np.float64), columns(np.float64)[::-1]
        residual = jax.jit(lambda op: op.residual(jnp.asarray(index), v, b))(operator(memory))
    np.testing.assert_allclose(residual, dense[index] @ np.asarray(v) - np.asarray(b)[index], **tolerance(np.float64))


@each_memory
@each_dtype
def test_the_full_product_equals_the_dense_one(memory, dtype, dense):
    with wide():
        v = columns(dtype)
        product = jax.jit(lambda op, v: op @ v)(operator(memory, dtype), v)
    assert product.dtype == dtype
    np.testing.assert_allclose(product, dense @ np.asarray(v, np.float64), **tolerance(dtype))


@each_memory
def test_columns_are_the_transpose_of_rows(memory, dense):
    index = np.array([3, 699, 3, 0], np.int32)
    with wide():
        u = np.asarray(columns(np.float64))[:4]
        for op, matrix in ((operator(memory), dense), (operator(memory).noiseless, dense - NOISE * np.eye(N))):
            product = op.columns(jnp.asarray(index), jnp.asarray(u))
            np.testing.assert_allclose(product, matrix[:, index] @ u, atol=1e-11)


@each_memory
def test_blocks_and_diagonal_equal_those_of_the_dense_matrix(memory, dense):
    index = np.array([600, 2, 513], np.int32)
    with wide():
        op = operator(memory)
        np.testing.assert_allclose(op.block(jnp.asarray(index)), dense[np.ix_(index, index)], atol=1e-12)
        np.testing.assert_allclose(op.diagonal(), dense.diagonal(), atol=1e-12)


@each_memory
@each_dtype
def test_dense_is_float64_whatever_the_precision(memory, dtype, dense):
    matrix = operator(memory, dtype).dense()
    assert matrix.dtype == np.float64
    np.testing.assert_allclose(matrix, dense, atol=1e-12 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("n", [1, 511, 513, 1024])
def test_streaming_works_at_every_size_around_the_tile(n):
    with wide():
        x, v = points(n), jnp.ones((n, 1))
        streamed = dg.KernelOperator(KERNEL, x, NOISE, memory=0)
        product = jax.jit(lambda op: op.noiseless.rows(jnp.arange(1), v))(streamed)
    np.testing.assert_allclose(product[0, 0], gram(KERNEL, x[:1], x).sum(), rtol=1e-12)


def test_k_is_kept_exactly_when_it_fits_the_budget():
    x = points(100, dtype=np.float32)
    assert dg.KernelOperator(KERNEL, x, NOISE, memory=4 * 100**2).kept is not None
    assert dg.KernelOperator(KERNEL, x, NOISE, memory=4 * 100**2 - 1).kept is None


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        (np.float32, None, np.float32),
        (np.float64, None, np.float64),
        (np.float16, None, np.float32),
        (np.int64, None, np.float64),
        (np.float64, np.float32, np.float32),
        (np.float32, np.float64, np.float64),
    ],
)
def test_the_precision_is_that_of_the_inputs_unless_asked_for(given, asked, expected):
    x = (10 * points(20)).astype(given)
    op = dg.KernelOperator(KERNEL, x, NOISE, dtype=asked)
    assert op.dtype == expected
    assert dg.solve(op, np.ones(20), dg.SDD(num_steps=1, batch_size=4), key=jax.random.key(0)).weights.dtype == expected


@each_memory
def test_products_accept_numpy_arrays_outside_any_context(memory, dense):
    v = np.random.default_rng(5).normal(size=(N, 4))
    np.testing.assert_allclose(np.asarray(operator(memory) @ v), dense @ v, atol=1e-11)


@pytest.mark.parametrize("solver", [dg.Cholesky(), dg.SDD(tol=1e-3, averaging=0.05, num_steps=20_000)], ids=type)
def test_solvers_run_on_any_matrix(solver):
    matrix, b = gram(KERNEL, points(120)), np.random.default_rng(0).normal(size=120)
    solution = dg.solve(DenseOperator(matrix, NOISE), b, solver, key=jax.random.key(0))
    assert relative((matrix + NOISE * np.eye(120)) @ solution.weights - b, b) <= 1e-3


def test_the_gradient_of_a_streamed_product_equals_the_dense_one():
    x, v = points(700, dtype=np.float32), np.ones((700, 1), np.float32)
    rows = points(3, seed=1, dtype=np.float32)
    kernel = KERNELS["Matern32"]
    streamed = lambda r: tiles.tiled_product(kernel, r, jnp.asarray(x), jnp.asarray(v)).sum()
    streamed, direct = (jax.jit(jax.grad(f))(rows) for f in (streamed, lambda r: (kernel(r, x) @ v).sum()))
    np.testing.assert_allclose(streamed, direct, rtol=1e-4, atol=1e-3)


def test_inputs_whose_distances_overflow_are_refused():
    x = np.array([[0.0], [1e20]], np.float32)
    with pytest.raises(ValueError, match="squared distances overflow float32"):
        dg.KernelOperator(dg.Matern32(1.0), x, 0.1)
    dg.KernelOperator(dg.Matern32(1e20), x, 0.1)


@pytest.mark.parametrize(
    ("own", "file"), [("0::/job/step", "job/memory.max"), ("4:memory:/job", "memory/job/memory.limit_in_bytes")]
)
def test_memory_is_that_of_the_smallest_control_group_around(monkeypatch, tmp_path, own, file):
    monkeypatch.setattr(policy, "GROUPS", tmp_path)
    monkeypatch.setattr(policy, "OWN_GROUP", tmp_path / "own")
    (tmp_path / "own").write_text(f"{own}\n7:cpu:/elsewhere\n")
    whole = policy.machine_memory()
    assert whole > 1 << 28
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("max\n")
    assert policy.machine_memory() == whole
    (tmp_path / file).write_text("1048576\n")
    assert policy.machine_memory() == 1 << 20


def test_where_noise_is_little_float32_is_careful():
    x = (10 * np.repeat(points(100, 12), 20, axis=0) + 0.1 * points(2000, 12, seed=1)).astype(np.float32)
    operators = [dg.KernelOperator(dg.Matern32(1.0), x, noise, memory=0) for noise in (0.1, 1e-4)]
    assert [operator.careful for operator in operators] == [False, True]
    index, v = np.arange(0, 2000, 20), np.ones((2000, 1), np.float32)
    exact = gram(dg.Matern32(1.0), x[index], x).sum(axis=1, keepdims=True)
    errors = [np.abs(np.asarray(operator.noiseless.rows(index, v)) - exact).max() for operator in operators]
    assert errors[1] < 0.1 * errors[0]
    assert not dg.KernelOperator(dg.Matern32(1.0), x.astype(np.float64), 1e-4, memory=0).careful


def test_for_a_few_passes_k_is_kept_where_that_saves_time():
    x = points(600, dtype=np.float32)
    ordinary, double, molecules = (
        dg.KernelOperator(kernel, data, 0.1, few_passes=True)
        for kernel, data in (
            (dg.Matern32(), x),
            (dg.Matern32(), x.astype(np.float64)),
            (dg.Tanimoto(), (x > 0).astype(np.uint8)),
        )
    )
    assert ordinary.kept is None
    assert all(operator.kept is not None for operator in (double, molecules))
    assert dg.KernelOperator(dg.Matern32(), x, 0.1).kept is not None
    assert dg.KernelOperator(dg.Matern32(), x, 0.1, few_passes=True, memory=1 << 30).kept is not None
