"""The near field: predictions corrected by the nearest rows, checked against dense formulas in float64."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, exact_posterior, gram, inputs, points, shifted_gram

N, KEY = 400, jax.random.key(0)
NAMES = ["Matern32", "RBF-per-dimension", "sum", "Tanimoto", "mixed"]


def problem(name, n=N, m=40):
    kernel, (x, y) = KERNELS[name], data(n)
    return kernel, inputs(kernel, x), y, inputs(kernel, points(m, seed=3))


@cache
def stopped(name, passes, neighbours=20, num_samples=8, **more):
    kernel, x, y, _ = problem(name)
    model, solver = dg.GaussianProcess(kernel, NOISE), dg.BlockDescent(block_size=40, tol=0.0)
    settings = {
        "num_samples": num_samples,
        "num_features": 512,
        "key": KEY,
        "max_passes": passes,
        "merge": False,
    } | more
    return model.condition(x, y, solver=solver, neighbours=neighbours, **settings)


def nearest(kernel, x, point, num):
    """The nearest rows of one point by the kernel's own measure."""
    if kernel.falls_with_distance:
        coordinates = np.asarray(kernel.coordinates(np.concatenate([x, point[None]])), np.float64)
        return np.argsort(np.sum((coordinates[:-1] - coordinates[-1]) ** 2, axis=1), kind="stable")[:num]
    correlation = np.abs(gram(kernel, x, point[None])[:, 0]) / np.sqrt(np.maximum(gram(kernel, x).diagonal(), 1e-30))
    return np.argsort(-correlation, kind="stable")[:num]


def by_hand(kernel, x, targets, weights, point, num):
    """Far and near field of every column at one point, and the variance given the neighbours alone."""
    A = shifted_gram(kernel, x)
    residuals, near = targets - A @ weights, nearest(kernel, x, point, num)
    across = gram(kernel, x, point[None])[:, 0]
    u = np.linalg.solve(A[np.ix_(near, near)], across[near])
    return across @ weights + u @ residuals[near], gram(kernel, point[None])[0, 0] - u @ across[near]


@pytest.mark.parametrize("name", NAMES)
def test_mean_and_functions_are_far_field_plus_near_field(name):
    kernel, x, _, x_new = problem(name)
    post = stopped(name, 0.6)
    assert post.solution.residual.max() > 0.02  # a far field that is not worth correcting would show nothing
    targets, weights = (np.asarray(array, np.float64) for array in (post.targets, post.weights))
    phi = np.asarray(post.prior(jnp.asarray(x_new, jnp.float32)), np.float64)
    for i in range(0, len(x_new), 5):
        values, _ = by_hand(kernel, x, targets, weights, x_new[i], 20)
        np.testing.assert_allclose(post.mean(x_new[i : i + 1])[0], values[0], atol=2e-5)
        expected = phi[i] + values[0] - values[1:]
        np.testing.assert_allclose(post.samples(x_new[i : i + 1])[:, 0], expected, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_without_far_weights_it_is_the_gp_of_the_nearest_rows(name):
    kernel, x, y, x_new = problem(name)
    post = dg.GaussianProcess(kernel, NOISE).condition(
        x, y, num_far=0, neighbours=20, num_samples=0, key=KEY, merge=False
    )
    mean, std = post.predict(x_new)
    for i in range(0, len(x_new), 5):
        values, variance = by_hand(kernel, x, y[:, None], np.zeros((N, 1)), x_new[i], 20)
        np.testing.assert_allclose((mean[i], std[i] ** 2), (values[0], variance), rtol=1e-5, atol=1e-6)
    assert post.num_far == 0 and post.solution.passes == 0


def test_all_rows_as_neighbours_are_the_exact_gp():
    kernel, x, y, x_new = problem("Matern32")
    exact = exact_posterior(kernel, NOISE, x, y, x_new)
    for post in (stopped("Matern32", 0.6, neighbours=N), stopped("Matern32", 0.6, neighbours=N + 7)):
        np.testing.assert_allclose(post.mean(x_new), exact.mean, atol=1e-5)


@pytest.mark.parametrize("passes", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("name", ["Matern12", "Matern32", "RBF"])
def test_variance_lies_between_the_exact_one_and_that_of_the_neighbours(name, passes):
    """Var f = exact variance + expected squared error <= variance given the neighbours, within sampling error."""
    kernel, x, y, x_new = problem(name, m=30)
    num = 2000
    post = dg.GaussianProcess(kernel, NOISE).condition(
        *(x, y),
        solver=dg.BlockDescent(block_size=40, tol=0.0),
        neighbours=12,
        num_samples=num,
        key=KEY,
        max_passes=passes,
    )
    A, weights = shifted_gram(kernel, x), np.asarray(post.weights, np.float64)
    exact = exact_posterior(kernel, NOISE, x, y, x_new)
    deviations, _ = post.predictor.deviations(x_new)
    spread = np.mean(np.asarray(deviations) ** 2, axis=1)
    residuals = np.asarray(post.targets, np.float64) - A @ weights
    across, limits, errors = gram(kernel, x, x_new), [], []
    for i, point in enumerate(x_new):
        near = nearest(kernel, x, point, 12)
        u = np.linalg.solve(A[np.ix_(near, near)], across[near, i])
        limits.append(gram(kernel, point[None])[0, 0] - u @ across[near, i])
        # the error of each sample's own prediction, whose mean square is the expected squared error of the mean
        gap = across[:, i] @ np.linalg.solve(A, residuals) - u @ residuals[near]
        errors.append(np.mean(gap[1:] ** 2))
    exact_variance, tolerance = exact.covariance.diagonal(), 5 * np.sqrt(2 / num)
    np.testing.assert_allclose(spread, exact_variance + errors, rtol=tolerance)
    assert (spread >= exact_variance * (1 - tolerance)).all()
    assert (spread <= np.array(limits) * (1 + tolerance)).all()
    assert np.all(post.std(x_new) ** 2 <= np.array(limits) * (1 + 1e-4) + 1e-6)


def test_the_error_bound_holds_at_every_point_and_for_every_budget():
    kernel, x, y, x_new = problem("Matern32")
    exact = exact_posterior(kernel, NOISE, x, y, x_new).mean
    for passes in (0.3, 1.0, 3.0):
        post = stopped("Matern32", passes)
        error = np.abs(post.mean(x_new) - exact)
        assert (error <= post.error_bound(x_new)).all() and error.max() <= post.error_bound()


@pytest.mark.parametrize("name", ["Matern32", "Tanimoto"])
def test_a_value_depends_on_its_own_point_alone(name):
    _, _, _, x_new = problem(name)
    post = stopped(name, 0.6)
    together, alone = post.samples(x_new), np.concatenate([post.samples(point[None]) for point in x_new], axis=1)
    np.testing.assert_allclose(alone, together, rtol=1e-6, atol=2e-6)
    backwards = post.samples(x_new[::-1])[:, ::-1]
    np.testing.assert_allclose(backwards, together, rtol=1e-6, atol=2e-6)


def test_functions_and_their_gradients_are_the_same_inside_jit():
    _, _, _, x_new = problem("Matern32")
    f = stopped("Matern32", 0.6).samples
    assert f.near is not None
    points32 = jnp.asarray(x_new, jnp.float32)
    np.testing.assert_allclose(jax.jit(f)(points32), f(x_new), atol=2e-3)
    np.testing.assert_allclose(jax.vmap(lambda point: f(point[None])[:, 0])(points32).T, f(x_new), atol=2e-3)
    each = jax.jit(lambda points: f.each(points))(jnp.broadcast_to(points32[None, :4], (len(f), 4, 3)))
    np.testing.assert_allclose(each[0], f(x_new[:4]), atol=2e-3)
    gradient = jax.grad(lambda points: f[2](points).sum())(points32)
    np.testing.assert_allclose(each[1][2], gradient[:4], atol=5e-3)
    for i in range(4):
        step = 1e-3 * np.eye(3)
        ends = (f[2](x_new[i] + sign * step)[0].astype(np.float64) for sign in (1, -1))
        difference = np.subtract(*ends) / 2e-3
        np.testing.assert_allclose(gradient[i], difference, atol=0.05 * np.abs(difference).max() + 2e-3)


def test_a_turned_or_averaged_function_keeps_its_near_field():
    _, _, _, x_new = problem("Matern32")
    f = stopped("Matern32", 0.6).samples
    np.testing.assert_allclose((-f)(x_new), -f(x_new), atol=1e-6)
    np.testing.assert_allclose(f.average()(x_new)[0], f(x_new).mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(f[3](x_new)[0], f(x_new)[3], atol=1e-6)


@pytest.mark.parametrize("solver", [dg.SDD(num_steps=300, tol=0.0), dg.CG(max_iterations=3), dg.CG(max_iterations=13)])
def test_other_solvers_have_residuals_of_all_rows(solver):
    kernel, x, y, _ = problem("Matern32")
    post = dg.GaussianProcess(kernel, NOISE).condition(x, y, solver=solver, num_samples=2, key=KEY, neighbours=20)
    A = shifted_gram(kernel, x)
    expected = np.asarray(post.targets, np.float64) - A @ np.asarray(post.weights, np.float64)
    np.testing.assert_allclose(post.residuals, expected, atol=1e-4 * np.abs(np.asarray(post.targets)).max())


def test_leaving_one_out_with_few_weights_is_leaving_the_row_out_of_both_fields():
    kernel, x, y, _ = problem("Matern32")
    post = dg.GaussianProcess(kernel, NOISE).condition(
        x, y, num_far=0, neighbours=20, num_samples=0, key=KEY, merge=False
    )
    mean, std = post.leave_one_out()
    others = np.arange(1, N)
    expected, variance = by_hand(kernel, x[others], y[others, None], np.zeros((N - 1, 1)), x[0], 20)
    np.testing.assert_allclose((mean[0], std[0] ** 2), (expected[0], variance + NOISE), rtol=1e-5)


def test_new_rows_enter_the_near_field_at_once():
    kernel, x, y, x_new = problem("Matern32")
    post = stopped("Matern32", 3.0)
    more = post.update(x_new[:5], np.full(5, 2.0), key=KEY)
    assert more.n == N + 5 and more.num_far == N and more.solution.passes == post.solution.passes
    residuals = np.asarray(more.residuals)[:, 0]
    np.testing.assert_allclose(
        residuals[N:], 2.0 - gram(kernel, x_new[:5], x) @ np.asarray(post.weights)[:, 0], atol=1e-4
    )
    every_x, every_y = np.concatenate([x, x_new[:5]]), np.concatenate([y, np.full(5, 2.0)])
    expected = exact_posterior(kernel, NOISE, every_x, every_y, x_new[:5]).mean
    before, after = (np.linalg.norm(p.mean(x_new[:5]) - expected) for p in (post, more))
    assert after < 0.2 * before
    assert (
        np.abs(more.mean(x_new) - exact_posterior(kernel, NOISE, every_x, every_y, x_new).mean)
        <= more.error_bound(x_new)
    ).all()


def test_many_new_rows_are_solved_for():
    _, _, _, x_new = problem("Matern32")
    post = stopped("Matern32", 3.0)
    more = post.update(
        np.concatenate([x_new, x_new + 0.1]), np.zeros(80), key=KEY, solver=dg.BlockDescent(block_size=40)
    )
    assert more.num_far == more.n == N + 80


def test_the_same_functions_after_an_update_that_draws_later():
    """Without far weights functions are drawn when they are asked for: before an update and after it they agree."""
    kernel, x, y, x_new = problem("Matern32")
    settings = {"num_far": 0, "neighbours": 20, "num_samples": 3, "num_features": 256, "key": KEY}
    model = dg.GaussianProcess(kernel, NOISE)
    whole = model.condition(x, y, **settings)
    first = model.condition(x[:-4], y[:-4], **settings)
    assert first.targets.shape == (N - 4, 1)  # nothing is drawn before it is needed
    far = first.update(x[-4:], y[-4:], key=jax.random.key(9))
    np.testing.assert_allclose(far.samples(x_new), whole.samples(x_new), atol=1e-5)
    np.testing.assert_allclose(far.mean(x_new), whole.mean(x_new), atol=1e-6)


@pytest.mark.parametrize("passes", [0.0, 0.6])
def test_a_file_has_the_near_field(tmp_path, passes):
    kernel, x, y, x_new = problem("Matern32")
    post = (
        stopped("Matern32", passes)
        if passes
        else dg.GaussianProcess(kernel, NOISE).condition(x, y, num_far=0, neighbours=20, num_samples=3, key=KEY)
    )
    dg.save(post, tmp_path / "model.dgp")
    again = dg.load(tmp_path / "model.dgp")
    for ask in (lambda p: p.mean(x_new), lambda p: p.std(x_new), lambda p: p.samples(x_new)):
        np.testing.assert_array_equal(ask(again), ask(post))
    np.testing.assert_array_equal(
        again.update(x_new, np.zeros(40), key=KEY).mean(x_new), post.update(x_new, np.zeros(40), key=KEY).mean(x_new)
    )


@pytest.mark.parametrize("mesh", [1])
def test_a_mesh_makes_no_difference(mesh):
    _, _, _, x_new = problem("Matern32")
    plain, sharded = stopped("Matern32", 0.6), stopped("Matern32", 0.6, mesh=mesh)
    np.testing.assert_allclose(sharded.mean(x_new), plain.mean(x_new), atol=1e-5)
    np.testing.assert_allclose(sharded.std(x_new), plain.std(x_new), rtol=1e-4)


class TestBadInput:
    """An answer or a sentence, never NaN."""

    def fit(self, x, y, noise=NOISE, kernel=KERNELS["Matern32"], **settings):
        model = dg.GaussianProcess(kernel, noise)
        return model.condition(x, y, **{"num_far": 0, "neighbours": 10, "num_samples": 2, "key": KEY} | settings)

    @pytest.mark.parametrize("far", [0, 30])
    @pytest.mark.parametrize("what", ["equal rows", "one row", "two equal rows", "an outlier"])
    def test_answers_are_finite(self, what, far):
        x, y = data(60)
        x, y = {
            "equal rows": (np.ones_like(x), y),
            "one row": (x[:1], y[:1]),
            "two equal rows": (np.concatenate([x, x]), np.concatenate([y, -y])),
            "an outlier": (np.where(np.arange(60)[:, None] == 3, -9999.0, x), y),
        }[what]
        post = self.fit(x, y, noise=1e-12, num_far=min(far, len(y)), solver=dg.BlockDescent(max_passes=3.0))
        where = np.concatenate([x[:5], points(5, seed=4), np.full((1, 3), 1e6), np.full((1, 3), -9999.0)])
        for values in (*post.predict(where), post.samples(where), post.mean(where)):
            assert np.isfinite(values).all()

    def test_far_from_all_data_it_is_the_prior(self):
        x, y = data(60)
        mean, std = self.fit(x, y).predict(np.full((1, 3), 1e6))
        assert mean[0] == 0 and std[0] == pytest.approx(np.sqrt(1.3))

    def test_nan_in_a_query_is_a_sentence(self):
        x, y = data(60)
        with pytest.raises(ValueError, match=r"NaN or infinite"):
            self.fit(x, y).predict(np.array([[0.0, np.nan, 0.0]]))

    def test_an_empty_query_is_an_empty_answer(self):
        x, y = data(60)
        for far in (0, 60):
            mean, std = self.fit(x, y, num_far=far, solver=dg.BlockDescent(block_size=20)).predict(np.zeros((0, 3)))
            assert mean.shape == std.shape == (0,)

    def test_bytes_for_tanimoto(self):
        kernel, x, y, x_new = problem("Tanimoto", 100)
        floats, counts = (self.fit(x.astype(dtype), y, kernel=kernel) for dtype in (np.float64, np.uint8))
        np.testing.assert_allclose(counts.mean(x_new.astype(np.uint8)), floats.mean(x_new), atol=1e-6)

    @pytest.mark.parametrize("bad", [-1, "many", True])
    def test_a_number_of_neighbours_is_checked(self, bad):
        x, y = data(60)
        with pytest.raises(ValueError, match="neighbours must be"):
            self.fit(x, y, neighbours=bad)
