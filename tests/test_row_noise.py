"""A noise for every row: against scikit-learn, dense formulas in float64, and itself with rows repeated."""

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

import dualgp as dg
from cases import KERNELS, gram, inputs, points, relative
from dualgp.learning import Exact, FullData, Neighbours, Subset

KEY = jax.random.key(0)


def noisy(n=500, seed=0):
    """Inputs, variances and targets that have them."""
    rng = np.random.default_rng(seed)
    x, variances = rng.uniform(-3, 3, (n, 2)), np.exp(rng.uniform(-4, 0, n))
    return x, variances, np.sin(2 * x[:, 0]) + np.cos(x[:, 1]) + np.sqrt(variances) * rng.normal(size=n)


def dense(kernel, variances, x, y, x_new):
    """Mean and standard deviation by textbook formulas."""
    A, cross = gram(kernel, x) + np.diag(variances), gram(kernel, x, x_new)
    solved = np.linalg.solve(A, cross)
    return solved.T @ y, np.sqrt(gram(kernel, x_new).diagonal() - np.sum(cross * solved, axis=0))


def test_it_is_scikit_learns_alpha():
    x, variances, y = noisy()
    x_new = points(50, 2, seed=1)
    post = dg.GaussianProcess(dg.Matern32(0.9), 0.1).condition(x, y, noise=variances, num_samples=0)
    theirs = GaussianProcessRegressor(Matern(0.9, nu=1.5), alpha=variances, optimizer=None).fit(x, y)
    mean, std = theirs.predict(x_new, return_std=True)
    np.testing.assert_allclose(post.mean(x_new), mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(post.std(x_new), std, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(post.std(x_new, noise=True), np.sqrt(std**2 + 0.1))
    np.testing.assert_allclose(post.std(x_new, noise=np.arange(1.0, 51.0)), np.sqrt(std**2 + np.arange(1.0, 51.0)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "solver", [dg.BlockDescent(tol=1e-3), dg.CG(tol=1e-4), dg.SDD(tol=1e-2)], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("name", ["Matern32-per-dimension", "sum", "Tanimoto"])
def test_iterations_reach_the_exact_posterior_and_its_bound_holds(name, solver, dtype):
    kernel, rng = KERNELS[name], np.random.default_rng(0)
    x, x_new = (inputs(kernel, points(n, seed=seed)) for n, seed in ((600, 0), (40, 1)))
    y, variances = rng.normal(size=600), np.exp(rng.uniform(-4, 0, 600))
    model = dg.GaussianProcess(kernel, 0.1)
    run = {"noise": variances, "solver": solver, "dtype": dtype, "key": KEY, "merge": False}
    post = model.condition(x, y, **run, neighbours=0)
    mean, std = dense(kernel, variances, x, y, x_new)
    assert post.solution.result is dg.Result.CONVERGED
    assert np.all(np.abs(post.mean(x_new) - mean) <= post.error_bound(x_new) * 1.01 + 1e-6)
    assert relative(post.mean(x_new) - mean, mean) < 0.05
    assert 0.6 < np.exp(np.mean(np.log(post.std(x_new) / std))) < 1.4
    near = model.condition(x, y, **run)
    assert np.all(np.abs(near.mean(x_new) - mean) <= near.error_bound(x_new) * 1.01 + 1e-6)


def test_the_near_field_alone_weighs_neighbours_by_their_noise():
    x, variances, y = noisy(300)
    x_new, kernel = points(20, 2, seed=1), dg.Matern32(0.9)
    post = dg.GaussianProcess(kernel, 0.1).condition(
        x, y, noise=variances, num_far=0, neighbours=30, num_samples=0, key=KEY
    )
    mean, std = post.predict(x_new)
    traced = jax.jit(post.mean)(x_new.astype(np.float32))
    np.testing.assert_allclose(traced, mean, atol=1e-4)
    for i, point in enumerate(x_new):
        near = np.argsort(np.sum((x - point) ** 2, axis=1))[:30]
        found = dense(kernel, variances[near], x[near], y[near], point[None])
        np.testing.assert_allclose((mean[i], std[i]), (found[0][0], found[1][0]), rtol=1e-6)


@pytest.mark.parametrize(
    "settings", [{}, {"solver": dg.BlockDescent(tol=1e-8), "dtype": np.float64}], ids=["exact", "iterated"]
)
def test_leaving_one_out_is_what_it_says(settings):
    x, variances, y = noisy(150)
    kernel = dg.Matern32(0.9)
    post = dg.GaussianProcess(kernel, 0.1).condition(
        x, y, noise=variances, num_samples=16, key=KEY, neighbours=149, **settings
    )
    mean, std = post.leave_one_out()
    for i in range(0, 150, 10):
        rest = np.arange(150) != i
        others = dense(kernel, variances[rest], x[rest], y[rest], x[i : i + 1])
        np.testing.assert_allclose(mean[i], others[0][0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(std[i], np.sqrt(others[1][0] ** 2 + variances[i]), rtol=0.02)


def test_new_rows_bring_their_noise_and_files_keep_it(tmp_path):
    x, variances, y = noisy(400)
    kernel, x_new = dg.Matern32(0.9), points(20, 2, seed=1)
    model = dg.GaussianProcess(kernel, 0.1)
    mean, std = dense(kernel, np.r_[variances[:350], np.full(50, 0.1)], x, y, x_new)
    post = model.condition(x[:300], y[:300], noise=variances[:300], num_samples=4, key=KEY)
    post = post.update(x[300:350], y[300:350], noise=variances[300:350], key=KEY).update(x[350:], y[350:], key=KEY)
    np.testing.assert_allclose(post.mean(x_new), mean, atol=1e-8)
    np.testing.assert_allclose(post.std(x_new), std, atol=1e-8)
    dg.save(post, tmp_path / "noisy.dgp")
    again = dg.load(tmp_path / "noisy.dgp")
    np.testing.assert_array_equal(again.mean(x_new), post.mean(x_new))
    np.testing.assert_array_equal(again.row_noise.variance, post.row_noise.variance)
    assert "of the rows" in again.report()


def test_new_rows_enter_the_near_field_with_their_noise():
    x, variances, y = noisy(420)
    model, x_new = dg.GaussianProcess(dg.Matern32(0.9), 0.1), points(20, 2, seed=1)
    run = {"solver": dg.BlockDescent(tol=1e-2), "num_samples": 4, "key": KEY, "neighbours": 400}
    post = model.condition(x[:400], y[:400], noise=variances[:400], **run).update(
        x[400:], y[400:], noise=variances[400:], key=KEY
    )
    assert post.num_far == 400 and post.n == 420
    mean, _ = dense(model.kernel, variances, x, y, x_new)
    np.testing.assert_allclose(post.mean(x_new), mean, atol=2e-3)


def test_an_interrupted_solve_with_noises_goes_on(tmp_path):
    x, variances, y = noisy(600)
    model, path = dg.GaussianProcess(dg.Matern32(0.9), 0.1), tmp_path / "solve.ckpt"
    run = {
        "noise": variances,
        "solver": dg.BlockDescent(tol=1e-6, block_size=60),
        "num_samples": 2,
        "key": KEY,
        "dtype": np.float64,
    }
    whole = model.condition(x, y, **run)
    model.condition(x, y, **run, max_passes=2.0, checkpoint=path)
    again = model.condition(x, y, **run, checkpoint=path)
    assert again.solution.steps == whole.solution.steps
    np.testing.assert_allclose(again.weights, whole.weights, atol=1e-10)
    run["noise"] = variances[::-1]
    model.condition(x, y, **run, max_passes=2.0, checkpoint=path)
    with pytest.raises(ValueError, match="another problem"):
        model.condition(x, y, **(run | {"noise": variances}), checkpoint=path)


@pytest.mark.parametrize(
    "method",
    [Exact(num_starts=1), Neighbours(), FullData(num_steps=4), Subset(num_groups=4, size=200)],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("role", ["added", "factor"])
def test_learning_finds_the_noise_beyond_what_is_known(method, role):
    rng = np.random.default_rng(3)
    n, truth = 800, 0.04 if role == "added" else 0.5
    x, known = rng.uniform(-3, 3, (n, 1)), np.exp(rng.uniform(-6, -1, n))
    variances = known + truth if role == "added" else truth * known
    y = np.sin(2 * x[:, 0]) + np.sqrt(variances) * rng.normal(size=n)
    start = dg.GaussianProcess(dg.RBF(1.0), 0.2)
    learned = dg.learn(start, x, y, noise=known, noise_role=role, method=method, key=KEY)
    assert 0.75 * truth < float(learned.model.noise) < 1.35 * truth
    np.testing.assert_allclose(
        learned.noise, known + learned.model.noise if role == "added" else known * learned.model.noise
    )
    plain = dg.learn(start, x, y, method=method, key=KEY).model
    rms = [
        np.sqrt(np.mean((model.condition(x, y, noise=noise, num_samples=0).mean(x) - np.sin(2 * x[:, 0])) ** 2))
        for model, noise in ((learned.model, learned.noise), (plain, None))
    ]
    assert rms[0] < rms[1]  # rows that are known better count for more


@pytest.mark.parametrize(
    "noise, words",
    [
        (np.zeros(500), "must be positive"),
        (-np.ones(500), "noise\\[0\\] = -1"),
        (np.full(500, np.nan), "must be positive"),
        (np.ones(499), "one variance for each of the 500 row"),
        (np.ones((500, 2)), "one variance for each"),
        (["a"] * 500, "real numbers"),
    ],
)
def test_what_is_no_noise_is_refused(noise, words):
    x, _, y = noisy()
    model = dg.GaussianProcess(dg.Matern32(), 0.1)
    for call in (model.condition, lambda x, y, noise: dg.learn(model, x, y, noise=noise, noise_role="factor", key=KEY)):
        with pytest.raises((ValueError, TypeError), match=words):
            call(x, y, noise=noise)


@pytest.mark.parametrize("settings", [{}, {"solver": dg.BlockDescent(tol=1e-6), "key": KEY}], ids=["exact", "near"])
def test_one_noise_of_all_rows_is_the_same_as_one_for_each(settings):
    x, _, y = noisy(200)
    model, x_new = dg.GaussianProcess(dg.Matern32(0.9), 0.1), points(20, 2, seed=1)
    one, each = (model.condition(x, y, noise=noise, num_samples=0, **settings) for noise in (0.5, np.full(200, 0.5)))
    for ours, theirs in zip(one.predict(x_new, noise=True), each.predict(x_new, noise=True), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(one.leave_one_out(), each.leave_one_out())


def test_the_noise_of_new_observations_is_checked():
    x, variances, y = noisy(100)
    post = dg.GaussianProcess(dg.Matern32(), 0.1).condition(x, y, noise=variances, num_samples=0)
    for noise, words in (([1.0, 2.0], "each of the 5 point"), (-1.0, "must be positive")):
        with pytest.raises(ValueError, match=words):
            post.predict(x[:5], noise=noise)


def test_thompson_sampling_believes_results_by_their_noise():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(40, 1))
    y = -((x[:, 0] - 0.3) ** 2)
    wrong = np.abs(x[:, 0] - 0.8) < 0.1
    y[wrong] += 5.0  # but these are known to be worth nothing
    best = []
    for noise in (np.where(wrong, 1e4, 1e-4), None):
        sampler = dg.ThompsonSampler([(0, 1)], key=KEY, model=dg.GaussianProcess(dg.Matern52(0.3), 1e-4), relearn=None)
        sampler.tell(x, y, noise=noise)
        sampler.tell(np.array([[0.5]]), [-0.04])
        best.append(float(np.median(sampler.ask(8))))
    assert abs(best[0] - 0.3) < 0.1 and abs(best[1] - 0.8) < 0.12
    with pytest.raises(ValueError, match="one variance for each"):
        sampler.tell(x, y, noise=[1.0, 2.0])
