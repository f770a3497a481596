import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from dualgp._arrays import wide
from dualgp.kernels.counts import as_lists, sums_of_minima
from dualgp.learning import DEFAULT_PRIORS
from dualgp.learning.problem import make_problem
from dualgp.learning.rows import as_rows
from dualgp.operators.merging import merge_rows

KEY = jax.random.key(0)


def sparse_counts(n: int, d: int, largest: int = 6, share: float = 0.1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(1, largest + 1, (n, d)) * (rng.random((n, d)) < share)).astype(np.uint8)


def min_over_max(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    """By definition, in float64."""
    a, b = x1[:, None].astype(int), x2[None].astype(int)
    return np.minimum(a, b).sum(axis=2) / np.maximum(a, b).sum(axis=2)


def scores(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = sparse_counts(n, 40, share=0.3, seed=seed)
    y = x[:, :5].sum(axis=1) + 0.5 * np.random.default_rng(seed).normal(size=n)
    return x, y


@pytest.mark.parametrize(("d", "largest"), [(1, 1), (32, 6), (100, 255)])  # bits; sums that fit a byte; that do not
def test_a_block_is_min_over_max(d, largest):
    x1, x2 = sparse_counts(9, d, largest, 0.5) + np.uint8(d == 1), sparse_counts(70, d, largest, 0.5, seed=1)
    kernel = dg.Tanimoto(1.7)
    for a, b in ((x1, x2), (x2, x1)):
        both = a.any(axis=1)[:, None] | b.any(axis=1)
        with np.errstate(invalid="ignore"):
            expected = np.where(both, 1.7 * min_over_max(a, b), 1.7)
        np.testing.assert_allclose(kernel(jnp.asarray(a), jnp.asarray(b)), expected, rtol=3e-7)


def test_lists_hold_the_nonzero_counts_in_order():
    x = sparse_counts(20, 77)
    lists = as_lists(x)
    used = int(lists.num_parts)
    columns, counts = (np.concatenate(np.asarray(part[:used]), axis=1) for part in (lists.columns, lists.counts))
    for row, column, count in zip(x, columns, counts, strict=True):
        np.testing.assert_array_equal(column[: np.count_nonzero(row)], np.flatnonzero(row))
        np.testing.assert_array_equal(count[: np.count_nonzero(row)], row[row > 0])
        assert not count[np.count_nonzero(row) :].any()


def test_sums_of_minima_of_full_rows_do_not_overflow():
    x = np.full((3, 257), 255, np.uint8)
    np.testing.assert_array_equal(sums_of_minima(x)(x), np.full((3, 3), 65_535))


def test_molecules_without_fragments_are_alike_and_unlike_all_others():
    x = jnp.asarray(np.array([[0, 0], [0, 0], [1, 2]], np.uint8))
    np.testing.assert_array_equal(dg.Tanimoto(2.0)(x, x)[0], [2.0, 2.0, 0.0])
    phi = np.asarray(dg.Tanimoto(2.0).features(KEY, 4096, 2)(x))
    np.testing.assert_allclose((phi @ phi.T)[0], [2.0, 2.0, 0.0], atol=4 * 2 / 64)


def test_features_products_are_within_three_standard_errors_of_the_kernel():
    x, num = jnp.asarray(sparse_counts(40, 200, share=0.2)), 16_384
    kernel = dg.Tanimoto()
    phi = np.asarray(kernel.features(KEY, num, 200)(x), np.float64)
    exact = np.asarray(kernel(x, x), np.float64)
    z = (phi @ phi.T - exact)[np.triu_indices(40, 1)] / np.sqrt((1 - exact**2) / num)[np.triu_indices(40, 1)]
    assert np.mean(np.abs(z) < 3) > 0.985  # 99.7 % of normal ones are
    assert abs(z.std() - 1) < 0.15
    assert abs(z.mean()) < 0.25


def test_a_product_with_hashes_pairs_features():
    kernel = dg.On(dg.Tanimoto(1.5), 0, 30) * dg.On(dg.Matern32(1.0), 30) * dg.On(dg.Tanimoto(), 5, 20)
    x = np.concatenate([sparse_counts(8, 30, share=0.5), np.random.default_rng(0).normal(size=(8, 2))], axis=1)
    phi = np.asarray(kernel.features(KEY, 40_000, 32)(jnp.asarray(x, jnp.float32)))
    assert phi.shape == (8, 40_000)  # 20,000 pairs of sine and cosine, each with two signs
    np.testing.assert_allclose(phi @ phi.T, kernel(jnp.asarray(x), jnp.asarray(x)), atol=4.5 * 1.5 / np.sqrt(20_000))


def test_the_kernel_has_no_derivative_in_its_inputs_and_says_so():
    x = jnp.asarray(sparse_counts(4, 8), jnp.float32)
    with pytest.raises(TypeError, match="molecules are discrete"):
        jax.grad(lambda x: dg.Tanimoto()(x, x).sum())(x)


def test_inputs_that_are_not_counts_are_refused():
    x, y = scores(30)
    post = dg.GaussianProcess(dg.Tanimoto(), 0.1).condition(x, y, num_samples=0)
    for bad in (-1.0, 0.5, 256.0):
        wrong = x.astype(np.float64)
        wrong[3, 2] = bad
        for call in (lambda: dg.KernelOperator(dg.Tanimoto(), wrong, 0.1), lambda: post.mean(wrong)):  # noqa: B023
            with pytest.raises(ValueError, match=r"counts.*x\[3, 2\] is"):
                call()


def test_data_stay_bytes_from_the_operator_to_the_prediction():
    x, y = scores(400)
    model = dg.GaussianProcess(dg.Tanimoto(4.0), 0.3, mean=5.0)
    post = model.condition(x, y, solver=dg.BlockDescent(tol=1e-4), num_samples=8, memory=0, key=KEY)
    assert post.x.dtype == np.uint8
    assert post.weights.dtype == np.float32
    K = 4.0 * min_over_max(x, x)
    expected = 5.0 + K[:50] @ np.linalg.solve(K + 0.3 * np.eye(400), y - 5.0)
    np.testing.assert_allclose(post.mean(x[:50]), expected, atol=5e-3)
    np.testing.assert_allclose(post.mean(x[:50].astype(np.float64)), post.mean(x[:50]))
    more = post.update(x[:5], y[:5], solver=dg.BlockDescent(), key=KEY)
    assert more.x.dtype == np.uint8
    assert more.x.shape == (405, 40)


def test_float64_arithmetic_is_float64():
    x, _ = scores(60)
    operator = dg.KernelOperator(dg.Tanimoto(), x, 0.1, dtype=np.float64, memory=0)
    v = np.random.default_rng(0).normal(size=(60, 2))
    np.testing.assert_allclose(operator @ v, (min_over_max(x, x) + 0.1 * np.eye(60)) @ v, rtol=1e-12)


def test_learning_finds_variance_noise_and_mean():
    x, y = scores(250)
    start = dg.GaussianProcess(dg.Tanimoto(1.0), 1.0)
    for method in (dg.learning.Exact(num_starts=1), dg.learning.Neighbours(size=16, num_near=32, num_steps=10)):
        model = start.learn(x, y, key=KEY, method=method)
        assert dg.learning.log_likelihood(model, x, y) > dg.learning.log_likelihood(start, x, y) + 50


def test_the_regressor_leaves_counts_where_they_are(tmp_path):
    x, y = scores(200)
    fitted = dg.GPRegressor(dg.Tanimoto(), random_state=0, learn=False, noise=0.3).fit(x, y)
    assert not fitted.X_offset_.any()
    wanted = dg.GaussianProcess(dg.Tanimoto(), 0.3, mean=y.mean()).condition(x, y, num_samples=0).mean(x)
    np.testing.assert_allclose(fitted.predict(x), wanted, atol=1e-6)
    np.testing.assert_array_equal(fitted.predict(x.astype(np.int64)), fitted.predict(x))
    dg.save(fitted, tmp_path / "model.dgp")
    loaded = dg.load(tmp_path / "model.dgp")
    np.testing.assert_array_equal(loaded.predict(x, return_std=True), fitted.predict(x, return_std=True))
    np.testing.assert_array_equal(loaded.sample_functions()(x), fitted.sample_functions()(x))


def test_bytes_are_numbers_like_others_to_other_kernels():
    x, y = scores(50)
    mean = dg.GPRegressor(learn=False).fit(x, y).predict(x)
    np.testing.assert_allclose(mean, dg.GPRegressor(learn=False).fit(x.astype(float), y).predict(x), atol=1e-5)


def test_on_refuses_columns_that_are_not_there():
    with pytest.raises(ValueError, match=r"3 column\(s\), but the kernel looks at 2:5"):
        dg.KernelOperator(dg.On(dg.RBF(), 2, 5), np.zeros((4, 3)), 0.1)


def test_similarities_are_those_of_rdkit():
    pytest.importorskip("rdkit", reason="RDKit is the oracle")
    from rdkit import Chem, DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    smiles = [
        f"{'C' * (i % 7)}c1ccc({group})cc1{'O' * (i % 2)}" for i, group in enumerate(["N", "Cl", "C(=O)O", "F"] * 8)
    ]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=512)
    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    for counts in (True, False):
        make = generator.GetCountFingerprint if counts else generator.GetFingerprint
        theirs = [make(molecule) for molecule in molecules]
        x, _ = dg.fingerprints(smiles, radius=2, size=512, counts=counts)
        with wide():
            ours = np.asarray(dg.Tanimoto()(jnp.asarray(x), jnp.asarray(x)))
        expected = np.array([DataStructs.BulkTanimotoSimilarity(one, theirs) for one in theirs])
        np.testing.assert_array_equal(ours, expected.astype(np.float32))


def test_the_prior_of_a_lengthscale_is_about_the_columns_that_its_kernel_sees():
    x, y = scores(60)
    mixed = np.column_stack([x, 1e3 * np.random.default_rng(0).normal(size=60)])
    model = dg.GaussianProcess(dg.On(dg.Tanimoto(), 0, 40) * dg.On(dg.RBF(), 40), 0.1)
    problem = make_problem(model, as_rows(mixed, y, None, "added"), DEFAULT_PRIORS)
    place = problem.parameters.names.index("kernel.right.kernel.lengthscale")
    expected = np.log(DEFAULT_PRIORS["lengthscale"].median * mixed[:, 40].std())
    assert problem.penalty.centre[place] == pytest.approx(expected)


def test_equal_rows_are_found_whatever_their_type():
    x = np.array([[0, 1], [2, 0], [0, 1], [0, 1], [2, 0]], np.uint8)
    y = np.array([1.0, 2.0, 1.0, 3.0, 2.0])
    for dtype in (np.uint8, np.float32, np.float64):
        found = merge_rows(x.astype(dtype), y)
        assert found.group.tolist() == [0, 1, 0, 0, 1] and found.repeats.tolist() == [2, 1]
        np.testing.assert_allclose((found.y, found.spread), ([5 / 3, 2.0], [8 / 3, 0.0]))


def test_many_small_sets_have_the_values_of_each():
    x = np.random.default_rng(0).poisson(0.6, (5, 7, 40)).astype(np.uint8)
    kernel = dg.Tanimoto(2.0)
    together = jax.vmap(lambda x: kernel(x, x[:3]))(jnp.asarray(x))
    for one, values in zip(x, together, strict=True):
        np.testing.assert_allclose(values, 2.0 * min_over_max(one, one[:3]), rtol=1e-6)
