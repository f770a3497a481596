"""Ask and tell: any order, partly, failures, killed processes; and that it finds what random search does not."""

import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from scipy.spatial.distance import pdist

import dualgp as dg

KEY = jax.random.key(0)
BOX = [(0.0, 2.0), (-1.0, 0.0)]
MODEL = dg.GaussianProcess(dg.Matern52([0.8, 0.4], 0.3), 1e-4)
QUICK = dg.Search(num_rounds=3, num_candidates=256, num_steps=15)


def bump(x):
    return np.exp(-8.0 * ((x[:, 0] - 1.3) ** 2 + (x[:, 1] + 0.4) ** 2))


def sampler(**settings):
    return dg.ThompsonSampler(BOX, **{"key": KEY, "model": MODEL, "relearn": None, "search": QUICK} | settings)


def rounds(sampler, num, batch=6, function=bump):
    batches = []
    for _ in range(num):
        x = sampler.ask(batch)
        sampler.tell(x, function(x))
        batches.append(x)
    return np.array(batches)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_a_peak_that_random_points_miss(seed):
    thompson = sampler(key=jax.random.key(seed), model=None, relearn=1.5)
    rounds(thompson, 5)
    random = np.random.default_rng(seed).uniform(*np.array(BOX).T, (30, 2))
    assert thompson.best.y > 0.99
    assert thompson.best.y > bump(random).max()
    assert np.abs(thompson.recommend().x - [1.3, -0.4]).max() < 0.05


def test_minimising_is_maximising_the_negative():
    up = rounds(sampler(model=None, relearn=2.0), 3)
    down = rounds(sampler(model=None, relearn=2.0, maximise=False), 3, function=lambda x: -bump(x))
    np.testing.assert_allclose(up, down, atol=1e-9)


def test_model_is_given_back_in_the_units_of_y():
    minimiser = sampler(model=dg.GaussianProcess(dg.RBF(1.0), 0.1, mean=5.0), maximise=False)
    assert float(minimiser.model.mean) == 5.0


def test_results_may_come_partly_rounded_and_in_any_order():
    thompson = sampler(num_initial=4)
    x = thompson.ask(8)
    assert thompson.num_pending == 8
    thompson.tell(np.round(x[[5, 2]], 7), bump(x[[5, 2]]))
    assert thompson.num_pending == 6
    thompson.tell(x[0], 0.3)  # one point
    assert thompson.num_pending == 5
    thompson.tell(np.array([[0.123, -0.5]]), [0.1])  # nobody asked for it
    assert thompson.num_pending == 5
    assert len(thompson.state.y) == 4
    thompson.ask(3)
    assert thompson.num_pending == 8


def test_failed_points_are_no_data_and_are_not_proposed_again():
    thompson = sampler(num_initial=2)
    x = thompson.ask(6)
    y = bump(x)
    y[[1, 4]] = np.nan
    thompson.tell(x, y)
    assert len(thompson.state.y) == 4
    assert thompson.num_pending == 0
    again = thompson.ask(20)
    assert min(np.abs(again - failed).max(axis=1).min() for failed in x[[1, 4]]) > 0
    thompson.tell(x[1], 0.5)  # it did not fail after all
    np.testing.assert_array_equal(thompson.state.failed, x[[4]])


def test_no_point_is_proposed_twice_even_if_all_functions_agree():
    thompson = sampler(model=dg.GaussianProcess(dg.RBF(5.0, 100.0), 1e-4))
    x = thompson.ask(8)
    thompson.tell(x, x.sum(axis=1))  # every function is highest in one corner
    first, second = thompson.ask(30), thompson.ask(30)
    assert pdist(np.concatenate([first, second])).min() > 1e-7
    assert (np.concatenate([first, second]) <= [2.0, 0.0]).all()


def test_first_points_fill_the_box():
    x = (sampler().ask(16) - [0.0, -1.0]) / [2.0, 1.0]
    assert np.bincount((2 * (x[:, 0] > 0.5) + (x[:, 1] > 0.5)).astype(int)).tolist() == [4, 4, 4, 4]


def test_hyperparameters_are_learned_when_there_is_so_much_more():
    thompson = sampler(model=None, relearn=2.0, num_initial=6)
    learned = []
    for _ in range(4):
        rounds(thompson, 1)
        learned.append(thompson.state.learned_at)
    assert learned == [0, 6, 12, 12]


def test_kept_functions_are_solved_from_where_they_were():
    rng = np.random.default_rng(0)
    x = rng.uniform(*np.array(BOX).T, (600, 2))
    solver = dg.BlockDescent(block_size=100)
    kept, fresh = (sampler(redraw=redraw, solver=solver) for redraw in (False, True))
    for thompson in (kept, fresh):
        thompson.tell(x, bump(x))
        rounds(thompson, 1)
    kept.ask(6)
    again = kept.state.posterior
    assert again.x.shape[0] == 606
    assert again.num_far == 600  # nothing was solved: the new results are in the near field
    exact = MODEL.condition(again.x, kept.state.y, num_samples=0)
    np.testing.assert_allclose(again.mean(again.x[600:]), exact.mean(again.x[600:]), atol=0.02)
    assert fresh.state.posterior is None


def test_another_process_goes_on_with_the_same_proposals(tmp_path):
    undisturbed = rounds(sampler(model=None, relearn=1.5), 5)
    first = rounds(sampler(model=None, relearn=1.5, path=tmp_path / "state"), 2)
    resumed = sampler(model=None, relearn=1.5, path=tmp_path / "state")
    resumed.ask(6)  # asked, then lost: not told, so not written
    rest = rounds(sampler(model=None, relearn=1.5, path=tmp_path / "state"), 3)
    np.testing.assert_array_equal(np.concatenate([first, rest]), undisturbed)


SCRIPT = """
import sys
import jax, numpy as np, dualgp as dg
model = dg.GaussianProcess(dg.Matern52(0.5, 0.3), 1e-4)
search = dg.Search(num_rounds=2, num_candidates=128, num_steps=5)
settings = {"model": model, "relearn": None, "search": search, "path": sys.argv[1]}
sampler = dg.ThompsonSampler([(0, 1)] * 2, key=jax.random.key(0), **settings)
while len(sampler.state.y) < 36:
    x = sampler.ask(6)
    sampler.tell(x, np.sin(5 * x).sum(axis=1))
print(sampler.state.x.sum(), len(sampler.state.y))
"""


def test_a_killed_process_ends_with_the_same_points(tmp_path):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SCRIPT]
    whole = subprocess.run([*command, tmp_path / "a"], capture_output=True, text=True, env=environment, timeout=300)
    for count in (12, 24):
        process = subprocess.Popen([*command, tmp_path / "b"], env=environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None:
            if (tmp_path / "b").exists() and len(dg.load(tmp_path / "b").y) >= count:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    again = subprocess.run([*command, tmp_path / "b"], capture_output=True, text=True, env=environment, timeout=300)
    assert whole.stdout.split()[1] == "36", whole.stderr
    assert again.stdout == whole.stdout, again.stderr


def test_a_file_of_another_problem_is_refused(tmp_path):
    rounds(sampler(path=tmp_path / "state"), 1)
    with pytest.raises(ValueError, match="another bounds"):
        dg.ThompsonSampler([(0.0, 1.0)] * 2, key=KEY, path=tmp_path / "state")
    with pytest.raises(ValueError, match="another model"):
        sampler(path=tmp_path / "state", relearn=1.5, model=dg.GaussianProcess(dg.RBF([1.0, 1.0]), 1e-4))
    dg.save(MODEL, tmp_path / "model")
    with pytest.raises(ValueError, match="not a ThompsonSampler"):
        sampler(path=tmp_path / "model")


def test_stages_are_told():
    words = []
    thompson = sampler(model=None, relearn=1.5, progress=words.append)
    rounds(thompson, 2)
    text = " ".join(words)
    assert all(stage in text for stage in ("learning", "solving for 6 functions", "candidates", "climbing"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.ask(0), "num must be a whole number"),
        (lambda s: s.tell([[0.1, 0.2, 0.3]], [1.0]), "3 column"),
        (lambda s: s.tell([[0.1, 0.2]], [1.0, 2.0]), "2 value"),
        (lambda s: s.tell([[0.1, 0.2]], [np.inf]), "infinite"),
        (lambda s: s.tell([[0.1, np.nan]], [1.0]), "NaN"),
        (lambda s: s.best, "no results yet"),
    ],
)
def test_bad_input_gets_a_sentence_and_changes_nothing(call, message):
    thompson = sampler()
    before = thompson.state
    with pytest.raises(ValueError, match=message):
        call(thompson)
    assert thompson.state is before


def test_bad_settings_get_a_sentence():
    with pytest.raises(ValueError, match="there must be learning"):
        dg.ThompsonSampler(BOX, key=KEY, relearn=None)
    with pytest.raises(ValueError, match="larger than 1"):
        sampler(relearn=0.5)
    with pytest.raises(TypeError, match="GaussianProcess"):
        sampler(model=dg.RBF(1.0))


class Own(dg.RBF):
    """A kernel that the package does not know."""


def test_a_campaign_with_a_kernel_of_ones_own_goes_on(tmp_path):
    own = dg.GaussianProcess(Own([0.8, 0.4]), 1e-3)
    first = sampler(model=own, path=tmp_path / "campaign.dgp")
    first.tell([[1.0, -0.5]], [1.0])
    again = sampler(model=own, path=tmp_path / "campaign.dgp")
    assert again.best.y == 1.0
    with pytest.raises(ValueError, match="another model"):
        sampler(model=dg.GaussianProcess(Own([0.8, 0.4]), 0.5), path=tmp_path / "campaign.dgp")


def test_six_digits_of_a_result_are_enough():
    far = dg.ThompsonSampler([(290.0, 310.0)], key=KEY)
    x = far.ask(20)
    far.tell(np.array([[float(f"{value:.6g}")] for value in x[:, 0]]), np.ones(20))
    assert far.num_pending == 0
