"""Learned models are at least as probable as those of another library, at every size."""

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import gaussian_process
from threadpoolctl import threadpool_info

import dualgp as dg
from cases import KERNELS, SEEDS, data, inputs
from datasets import prior_draw
from dualgp.learning import DEFAULT_PRIORS, Exact, FullData, Neighbours, Subset, exact, full, pathwise
from dualgp.learning.checkpoint import LearningFile
from dualgp.learning.likelihood import as_group, likelihood_and_gradient
from dualgp.learning.parameters import Parameters
from dualgp.learning.pathwise import pathwise_gradient
from dualgp.learning.problem import LastSolve, make_problem
from dualgp.learning.rows import as_rows
from dualgp.operators import policy
from dualgp.solvers.stopping import Deadline

KEY = jax.random.key(0)
QUICK = Neighbours(size=32, num_near=32, num_blocks=64, num_steps=15)


def test_the_exact_optimum_is_that_of_scikit_learn():
    kernels = gaussian_process.kernels
    x, y = data(150)
    peer = kernels.ConstantKernel(1.0) * kernels.Matern(np.ones(3), nu=2.5) + kernels.WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regressor = gaussian_process.GaussianProcessRegressor(peer, n_restarts_optimizer=4, random_state=0).fit(x, y)
    start = dg.GaussianProcess(dg.Matern52(np.ones(3)), noise=0.1)
    model = start.learn(x, y, key=KEY, priors=None, fixed=("mean",))
    reached = dg.learning.log_likelihood(model, x, y)
    best = regressor.log_marginal_likelihood_value_
    assert reached >= best - 1e-3 * abs(best)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_can_be_learned(name):
    x, y = data(120)
    x = inputs(KERNELS[name], x)
    # These kernels can only call the data noise: that much is to be learned.
    noise = 10.0 if name in ("Constant", "Periodic", "Periodic-per-dimension") else 1.0
    start = dg.GaussianProcess(KERNELS[name], noise, mean=3.0)
    model = start.learn(x, y, method=Exact(num_starts=1))
    assert dg.learning.log_likelihood(model, x, y) > dg.learning.log_likelihood(start, x, y) + 10
    assert jax.tree.structure(model) == jax.tree.structure(start)


@pytest.mark.parametrize("method", [QUICK, Subset(num_groups=4, size=200, rounds=1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_as_probable_as_the_true_one_is_found(method, dtype):
    true = dg.GaussianProcess(dg.Matern32([0.5, 2.0], 1.5), noise=0.05, mean=2.0)
    made = prior_draw(true, 3000, d=2, key=jax.random.key(1))
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0]), noise=0.5)
    model = start.learn(made.x.astype(dtype), made.y.astype(dtype), key=KEY, method=method)
    assert float(model.noise) == pytest.approx(0.05, rel=0.3)
    # The likelihood is flat along variance / lengthscale^3 = constant: being as probable as the truth is what matters.
    probable = [dg.learning.log_likelihood(m, made.x, made.y) for m in (start, model, true)]
    assert probable[1] > probable[2] - 0.02 * (probable[2] - probable[0])


def test_each_neighbourhood_by_itself_gives_the_geometric_mean():
    x, y = data(400)
    start = dg.GaussianProcess(dg.RBF(1.0), noise=0.2)
    model = start.learn(x, y, key=KEY, method=Subset(num_groups=3, size=100, separately=True))
    assert dg.learning.log_likelihood(model, x, y) > dg.learning.log_likelihood(start, x, y)


def test_all_rows_climb_to_the_likelihood_of_the_truth_and_know_how_far_they_came(monkeypatch):
    monkeypatch.setattr(full, "_start_from_neighbours", lambda *_: None)
    true = dg.GaussianProcess(dg.Matern32([0.3, 1.0], 1.0), noise=0.05)
    made = prior_draw(true, 2000, d=2, key=jax.random.key(1))
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0]), noise=0.3)
    steps = []
    problem = make_problem(
        start, as_rows(made.x, made.y, None, "added"), None, last_solve=LastSolve(num_samples=8), report=steps.append
    )
    outcome = FullData(gain=1e-3, num_samples=32).run(problem, KEY)
    posterior = outcome.posterior
    before, after, best = (
        dg.learning.log_likelihood(model, made.x, made.y) for model in (start, posterior.model, true)
    )
    assert after > best - 5.0
    assert steps[-1].value * 2000 == pytest.approx(after - before, rel=0.1)  # an integral of estimated gradients
    assert posterior.num_samples == 8
    np.testing.assert_allclose(problem.parameters.model(outcome.vector).noise, posterior.model.noise)


def test_from_all_rows_the_posterior_comes_with_the_model():
    made = prior_draw(dg.GaussianProcess(dg.Matern32(0.5), noise=0.1), 1600, d=2, key=jax.random.key(1))
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0]), noise=0.5)
    learned = dg.learn(start, made.x, made.y, key=KEY, num_samples=8, method=FullData())
    assert learned.posterior.num_samples == 8
    assert learned.posterior.model.noise == learned.model.noise
    assert "all rows" in learned.message
    assert "passes" in learned.message


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pathwise_gradient_is_unbiased_within_its_error_bars(seed):
    model = dg.GaussianProcess(dg.Matern32([0.5, 1.0, 2.0], 1.2), noise=0.1, mean=0.2)
    made = prior_draw(model, 2000, d=3, key=jax.random.key(100 + seed))
    other = dg.GaussianProcess(dg.Matern32([0.7, 0.8, 1.5], 0.9), noise=0.15)
    parameters = Parameters(other)
    exact = likelihood_and_gradient(parameters, parameters.start, as_group(made.x, made.y))[1]
    estimates = []
    for key in jax.random.split(jax.random.key(seed), 8):
        posterior = other.condition(made.x, made.y, num_samples=16, key=key)
        estimates.append(pathwise_gradient(parameters, parameters.start, posterior))
    error = np.std(estimates, axis=0, ddof=1) / np.sqrt(8)
    assert np.all(np.abs(np.mean(estimates, axis=0) - exact) < 4.5 * error + 1e-3 * np.abs(exact))
    assert np.all(error < 0.2 * np.abs(exact).max())


@pytest.mark.parametrize("n", [100, 512, 700, 1500])
def test_the_gradient_by_tiles_is_that_of_the_whole_matrix(n):
    x, y = data(n)
    model = dg.GaussianProcess(dg.Matern32([1.0, 0.8, 1.2], 1.3), noise=0.1)
    parameters = Parameters(model)
    posterior = model.condition(x, y, num_samples=3, key=KEY)
    with jax.enable_x64(True):
        v = jnp.asarray(posterior.weights)

        def form(vector):
            model = parameters.model(vector)
            products = jnp.sum(v * (model.kernel(jnp.asarray(x), jnp.asarray(x)) @ v + model.noise * v), axis=0)
            return 0.5 * products[0] - 0.5 * jnp.mean(products[1:]) + model.mean * jnp.sum(v[:, 0])

        expected = jax.grad(form)(jnp.asarray(parameters.start))
    np.testing.assert_allclose(pathwise_gradient(parameters, parameters.start, posterior), expected, rtol=1e-9)


def test_an_irrelevant_input_may_lose_its_lengthscale_to_infinity():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=300)
    model = dg.GaussianProcess(dg.RBF([1.0, 1.0]), noise=0.1).learn(x, y, key=KEY, priors=None)
    assert model.kernel.lengthscale[1] > 20 * model.kernel.lengthscale[0]
    assert np.isfinite(dg.learning.log_likelihood(model, x, y))
    dropped = dg.GaussianProcess(dg.RBF([1.0, np.inf]), noise=0.1).learn(x, y, key=KEY)
    assert dropped.kernel.lengthscale[1] == np.inf
    assert float(dropped.noise) == pytest.approx(0.01, rel=0.4)


def test_a_constant_input_has_no_scale_of_rounding_errors():
    x = np.column_stack([np.linspace(0, 1, 326), np.full(326, -0.0312)])
    assert np.std(x[:, 1]) > 0
    model, rows = dg.GaussianProcess(dg.Matern32([1.0, 1.0]), noise=0.1), as_rows(x, x[:, 0], None, "added")
    problem = make_problem(model, rows, DEFAULT_PRIORS)
    assert np.all(problem.penalty.centre[problem.parameters.is_lengthscale] > -3.0)


def test_fixed_parameters_stay_and_priors_pull():
    x, y = data(30)
    start = dg.GaussianProcess(dg.RBF(1.0, 1.0), noise=0.123, mean=0.5)
    held = start.learn(x, y, key=KEY, fixed=("noise", "mean"))
    assert (float(held.noise), float(held.mean)) == (0.123, 0.5)
    strong = {"lengthscale": dg.learning.LogNormal(7.0, 1e-4)}
    pulled = start.learn(x, y, key=KEY, priors=strong)
    assert float(pulled.kernel.lengthscale) == pytest.approx(7.0 * np.median(x.std(axis=0)), rel=0.01)
    assert "nothing to learn" in dg.learn(start, x, y, fixed=("lengthscale", "variance", "noise", "mean")).message


def test_a_copy_of_a_record_is_not_a_second_measurement():
    true = dg.GaussianProcess(dg.Matern32(0.5), noise=0.1)
    made = prior_draw(true, 1500, d=2, key=jax.random.key(1))
    x, y = np.concatenate([made.x, made.x[:500]]), np.concatenate([made.y, made.y[:500]])
    start = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5)
    assert float(start.learn(x, y, key=KEY, method=QUICK).noise) == pytest.approx(0.1, rel=0.3)


SLOW = {
    "evaluation": Neighbours(size=512, num_near=1500),  # one takes ten seconds
    "groups": Subset(num_groups=1000, size=500, rounds=10),
    "starts": Exact(num_starts=10_000),
}


def seconds_of(work):
    began = time.perf_counter()
    return work(), time.perf_counter() - began


@pytest.mark.parametrize("name", SLOW)
def test_the_time_limit_is_used_and_kept_also_within_an_evaluation(name):
    x, y = data(10_000 if name == "evaluation" else 1000)
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0, 1.0]), noise=0.5)
    work = lambda: dg.learn(start, x, y, key=KEY, method=SLOW[name], max_seconds=5.0)
    learned, seconds = seconds_of(work)
    assert 4.9 < seconds < 1.1 * 5.0 + 2.0
    assert learned.timed_out and not learned.finished and not learned.interrupted


def test_neighbours_are_searched_for_until_the_deadline():
    x, y = np.random.default_rng(0).normal(size=(2, 500_000, 8)).astype(np.float32)
    start = dg.GaussianProcess(dg.Matern32(np.ones(8)), noise=0.5)
    work = lambda: dg.learn(start, x, y[:, 0], key=KEY, method=Neighbours(), max_seconds=3.0)
    learned, seconds = seconds_of(work)
    assert seconds < 1.1 * 3.0 + 2.0
    assert learned.timed_out


def test_the_time_limit_holds_for_learning_and_the_last_solve_together():
    made = prior_draw(dg.GaussianProcess(dg.Matern32(0.3), noise=0.1), 6000, d=2, key=KEY)
    start, method = dg.GaussianProcess(dg.Matern32([1.0, 1.0]), noise=0.5), FullData(gain=1e-9, num_steps=1000)
    settings = {"key": KEY, "num_samples": 2, "method": method}
    dg.learn(start, made.x, made.y, max_seconds=10.0, **settings)  # compiles
    learned, seconds = seconds_of(lambda: dg.learn(start, made.x, made.y, max_seconds=4.0, **settings))
    assert 2.0 < seconds < 1.1 * 4.0 + 2.0
    assert learned.timed_out and learned.posterior is not None
    assert learned.history[-1].seconds < 4.0


def test_a_deadline_that_is_over_leaves_the_model_as_it_was():
    x, y = data(300)
    start, deadline = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5), Deadline(60.0)
    deadline.began -= 100.0
    for method in (QUICK, Exact(), Subset(num_groups=2, size=50), FullData()):
        learned = dg.learn(start, x, y, key=KEY, method=method, num_samples=2, max_seconds=deadline)
        assert learned.timed_out and not learned.history
        np.testing.assert_allclose(learned.model.noise, 0.5)


def test_a_gradient_that_there_is_no_time_for_is_not_begun(monkeypatch):
    x, y = data(300)
    start = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5)
    settings = {"key": KEY, "method": FullData(num_steps=2), "num_samples": 2, "max_seconds": 600.0}
    stages = lambda learned: {step.stage for step in learned.history}
    assert FullData.stage in stages(dg.learn(start, x, y, **settings))
    monkeypatch.setattr(full, "SOLVE_AND_GRADIENT", 1e9)
    learned = dg.learn(start, x, y, **settings)
    assert FullData.stage not in stages(learned) and learned.posterior is not None
    assert "The time limit ended it" in learned.message


def test_a_gradient_stops_when_its_time_is_over(monkeypatch):
    x, y = data(300)
    start, calls = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5), []
    compute = pathwise._kernel_gradient
    monkeypatch.setattr(pathwise, "TILE", 32)
    monkeypatch.setattr(full, "measure_seconds", lambda *_: 0.0)
    monkeypatch.setattr(pathwise, "_kernel_gradient", lambda *a: calls.append(a) or compute(*a))
    monkeypatch.setattr(Deadline, "is_over", lambda self: len(calls) >= 3)
    learned = dg.learn(start, x, y, key=KEY, method=FullData(), num_samples=2, max_seconds=600.0)
    assert len(calls) == 3 and learned.timed_out
    assert learned.posterior.solution.result is dg.Result.CONVERGED


def test_gradients_have_the_care_of_the_solve(monkeypatch):
    x, y = data(100, dtype=np.float32)
    model = dg.GaussianProcess(dg.Matern32([1.0, 1.0, 1.0]), noise=0.5)
    posterior, asked = model.condition(x, y, solver=dg.BlockDescent(), num_samples=2, key=KEY), []
    against = dg.Matern32.against
    monkeypatch.setattr(policy, "needs_care", lambda *_: True)
    spy = lambda self, x1, x2, careful=False: asked.append(careful) or against(self, x1, x2, careful)
    monkeypatch.setattr(dg.Matern32, "against", spy)
    pathwise_gradient(Parameters(model), Parameters(model).start, posterior)
    assert asked and all(asked)


class Killed(Exception):
    """What a test ends a run by."""


METHODS = {"exact": Exact(), "neighbours": QUICK, "all rows": FullData(gain=1e-9, num_steps=3)}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_learning_that_was_killed_at_any_step_ends_at_the_same_model_bit_for_bit(tmp_path, name, share):
    x, y = data(400)
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0, 1.0]), noise=0.5)
    settings = {"key": KEY, "method": METHODS[name], "num_samples": 2, "choose_kernel": True}
    whole = dg.learn(start, x, y, **settings)
    settings["checkpoint"], seen = tmp_path / "learn", []

    def kill(step):
        seen.append(step)
        if len(seen) > share * len(whole.history):
            raise Killed

    with pytest.raises(Killed):
        dg.learn(start, x, y, progress=kill, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["learn"]
    learned = dg.learn(start, x, y, **settings)
    for one, other in zip(jax.tree.leaves(learned.model), jax.tree.leaves(whole.model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [step.value for step in learned.history] == [step.value for step in whole.history]
    assert learned.finished and not list(tmp_path.iterdir())


def test_what_was_computed_before_a_run_was_killed_is_not_computed_again(tmp_path, monkeypatch):
    x, y = data(400)
    start, settings = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5), {"key": KEY, "checkpoint": tmp_path / "learn"}
    calls, compute = [], exact.likelihood_and_gradient
    monkeypatch.setattr(exact, "likelihood_and_gradient", lambda *a: calls.append(a) or compute(*a))
    whole = dg.learn(start, x, y, **settings)
    num, steps = len(calls), len(whole.history)

    def kill(step):
        settings["seen"] = settings.get("seen", 0) + 1
        if settings["seen"] == steps - 1:
            raise Killed

    with pytest.raises(Killed):
        dg.learn(start, x, y, progress=kill, **{k: settings[k] for k in ("key", "checkpoint")})
    calls.clear()
    dg.learn(start, x, y, **{k: settings[k] for k in ("key", "checkpoint")})
    assert len(calls) < 0.3 * num


def test_numbers_of_another_course_of_learning_are_forgotten(tmp_path):
    file = LearningFile(tmp_path / "file", "problem")
    assert [file.once([i], lambda i=i: np.array([10.0 * i]))[0] for i in range(3)] == [0.0, 10.0, 20.0]
    file.save()
    again = LearningFile(tmp_path / "file", "problem")
    assert again.once([0], lambda: np.array([-1.0]))[0] == 0.0
    assert again.once([7], lambda: np.array([-1.0]))[0] == -1.0  # as a time limit may cause
    assert again.once([2], lambda: np.array([-1.0]))[0] == -1.0


def test_what_was_learned_before_the_last_solve_was_killed_is_not_learned_again(tmp_path, monkeypatch):
    x, y = data(400)
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0, 1.0]), noise=0.5)
    settings = {"key": KEY, "method": FullData(), "num_samples": 2}
    whole = dg.learn(start, x, y, **settings)

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(full, "_solve_last", kill)
        dg.learn(start, x, y, checkpoint=tmp_path / "learn", **settings)
    monkeypatch.setattr(full, "pathwise_gradient", kill)
    learned = dg.learn(start, x, y, checkpoint=tmp_path / "learn", **settings)
    np.testing.assert_array_equal(learned.posterior.samples(x[:5]), whole.posterior.samples(x[:5]))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The arguments and settings of a run that was killed after its first step over all rows."""
    start = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5)
    settings = {"key": KEY, "method": FullData(gain=1e-9), "num_samples": 2}
    settings["checkpoint"] = tmp_path_factory.mktemp("killed") / "learn"

    def kill(step):
        if step.stage == FullData.stage:
            raise Killed

    with pytest.raises(Killed):
        dg.learn(start, *data(200), progress=kill, **settings)
    return (start, *data(200)), settings


@pytest.mark.parametrize(
    "other",
    [
        {"priors": {**DEFAULT_PRIORS, "noise": dg.learning.LogNormal(0.05, 2.0 + 1e-12)}},
        {"priors": None},
        {"method": FullData(gain=1e-9, num_samples=17)},
        {"fixed": ("mean",)},
        {"choose_kernel": True},
        {"num_samples": 3},
        {"solver": dg.Auto(tol=1e-3)},
        {"key": jax.random.key(1)},
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(killed, other):
    arguments, settings = killed
    with pytest.raises(ValueError, match=r"belongs to another problem"):
        dg.learn(*arguments, **{**settings, **other})


@pytest.mark.parametrize("name", METHODS)
def test_a_bar_goes_from_left_to_right(name):
    x, y = data(400)
    start = dg.GaussianProcess(dg.Matern32([1.0, 1.0, 1.0]), noise=0.5)
    shares = [s.share for s in dg.learn(start, x, y, key=KEY, method=METHODS[name], num_samples=2).history]
    assert all(np.diff(shares) >= 0) and 0.0 < shares[0] < 0.2 and 0.4 < shares[-1] <= 1.0


@pytest.mark.parametrize("method", [Exact(), QUICK, FullData()])
def test_ctrl_c_returns_the_best_so_far(method):
    x, y = data(200)
    start = dg.GaussianProcess(dg.Matern32(1.0), noise=0.5)
    seen = []

    def interrupt(step):
        seen.append(step)
        if len(seen) == 3:
            raise KeyboardInterrupt

    learned = dg.learn(start, x, y, key=KEY, method=method, num_samples=2, progress=interrupt)
    assert learned.interrupted and not learned.finished and not learned.timed_out and learned.posterior is None
    assert dg.learning.log_likelihood(learned.model, x, y) > dg.learning.log_likelihood(start, x, y)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_handful_of_points_is_enough_with_priors_and_refused_without(n):
    x, y = data(n)
    start = dg.GaussianProcess(dg.Matern32(1.0), noise=0.1)
    assert np.isfinite(jax.tree.leaves(start.learn(x, y))).all()
    with pytest.raises(ValueError, match=r"too few to learn from without priors"):
        start.learn(x, y, priors=None)


def test_constant_targets_give_their_mean():
    learned = dg.learn(dg.GaussianProcess(dg.RBF(1.0), noise=0.1), np.arange(9.0), np.full(9, 4.0))
    assert float(learned.model.mean) == 4.0
    assert "All y are 4" in learned.message


def test_what_will_be_solved_by_iterations_stays_solvable_unless_it_starts_beyond():
    x = np.random.default_rng(0).normal(size=(5000, 2))
    y = 7.0 * x[:, 0] + x[:, 1]  # a plane without noise: the larger the variance, the more probable
    start = dg.GaussianProcess(dg.RBF([1.0, 1.0], 50.0), noise=5.0)
    model = start.learn(x, y, key=KEY, method=QUICK, priors=None)
    assert float(model.noise) >= 3.9e-5 * 50.0 and float(model.kernel.variance) <= 2.1 * 50.0
    beyond = dg.GaussianProcess(dg.RBF([1.0, 1.0], 50.0), noise=1e-4)
    assert float(beyond.learn(x, y, key=KEY, method=QUICK, priors=None, fixed=("variance",)).noise) < 1e-3


@pytest.mark.parametrize("method", [Exact(num_starts=1), QUICK])
def test_rows_that_are_all_alike_tell_the_noise(method):
    y = np.random.default_rng(0).normal(3.0, 2.0, 600)
    model = dg.GaussianProcess(dg.RBF([1.0, 1.0]), noise=0.1).learn(np.ones((600, 2)), y, key=KEY, method=method)
    assert float(model.noise) == pytest.approx(4.0, rel=0.2)


def test_bad_input_is_refused_in_a_sentence():
    x, y = data(20)
    start = dg.GaussianProcess(dg.RBF([1.0, 1.0]), noise=0.1)
    with pytest.raises(ValueError, match=r"2 lengthscales, but x has 3 columns"):
        start.learn(x, y)
    with pytest.raises(ValueError, match=r"NaN or infinite"):
        start.learn(x[:, :2], np.where(y > 0, np.nan, y))
    with pytest.raises(TypeError, match=r"method must be 'auto' or one of Exact"):
        start.learn(x[:, :2], y, method="best")
    with pytest.raises(ValueError, match=r"Learning needs randomness: pass key"):
        start.learn(x[:, :2], y, method=Neighbours())


def test_x64_stays_off():
    x, y = data(50)
    dg.GaussianProcess(dg.RBF(1.0), noise=0.1).learn(x, y, key=KEY)
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("method", [Exact(), QUICK])
@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_the_units_of_y_do_not_matter(method, size):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(400, 2))
    y = size * (7.0 + np.sin(5 * x[:, 0]) + 0.1 * rng.normal(size=400))
    model = dg.GaussianProcess(dg.Matern32([1.0, 1.0]), noise=0.1).learn(x, y, key=KEY, method=method)
    assert float(model.noise) == pytest.approx((0.1 * size) ** 2, rel=0.3)


@pytest.mark.parametrize("method", [QUICK, Subset(num_groups=2, size=50, rounds=1), Exact(num_starts=1)])
def test_small_factorisations_have_one_thread_each(method):
    threads = []
    count = lambda step: threads.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
    dg.learn(dg.GaussianProcess(dg.Matern32(1.0), noise=0.5), *data(300), key=KEY, method=method, progress=count)
    assert set(threads) == {1}


def test_what_cannot_be_learned_from_is_said():
    x, y = data(20)
    start = dg.GaussianProcess(dg.RBF(1.0), noise=0.1)
    with pytest.raises(ValueError, match=r"x has no rows"):
        start.learn(x[:0], y[:0])
    with pytest.raises(TypeError):  # the annotations are checked first in tests
        dg.learn(dg.RBF(1.0), x, y)
    with pytest.raises(
        ValueError,
        match=r"no parameter 'noize' for a prior. Use lengthscale, noise, period, power, rough, scale, stretch",
    ):
        start.learn(x, y, priors={"noize": dg.learning.LogNormal(0.1, 1.0)})
    with pytest.raises(ValueError, match=r"median of the prior of 'noise' must be positive"):
        start.learn(x, y, priors={"noise": dg.learning.LogNormal(-0.1, 1.0)})
    with pytest.raises(TypeError):
        start.learn(x, y, priors=[0.1])
    with pytest.raises(ValueError, match=r"max_seconds must be positive"):
        start.learn(x, y, max_seconds=-1.0)
    with pytest.raises(ValueError, match=r"num_samples must be a whole number"):
        FullData(num_samples=0)
