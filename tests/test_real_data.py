"""The published figures that take seconds rather than minutes. The rest is in the benchmarks."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from datasets import docking_f2, docking_f2_counts, load_uci, published_model
from dualgp._arrays import wide
from dualgp.sklearn.fingerprints import fingerprints
from dualgp.sklearn.scaffolds import random_split
from dualgp.solvers.sdd import stable_step_size
from dualgp.solvers.spectrum import estimate_spectrum

pytestmark = pytest.mark.skipif("DUALGP_DATA" not in os.environ, reason="DUALGP_DATA does not name a folder of data")
KEY = jax.random.key(0)
LIMITS = {"pol": 51.6, "elevators": 9.4, "bike": 298.0, "protein": 63.5, "keggdirected": 21.4}


def operator(name, num=None):
    model, split = published_model(name), load_uci(name)
    return dg.KernelOperator(model.kernel, split.x[:num], model.noise, memory=0), split.y[:num]


@pytest.mark.parametrize("name", LIMITS)
def test_largest_stable_step_size_is_the_published_one(name):
    op, _ = operator(name)
    with wide():
        limit = stable_step_size(estimate_spectrum(op, KEY), batch_size=512, momentum=0.9)
    assert limit == pytest.approx(LIMITS[name], rel=0.1)


def test_a_step_size_of_50_on_elevators_is_caught_early_and_explained():
    solution = dg.solve(*operator("elevators"), dg.SDD(step_size=50.0, batch_size=512), key=KEY)
    assert solution.result is dg.Result.DIVERGED
    assert solution.steps <= 500
    assert "step_size=50 is too large here" in solution.message
    assert "Pass step_size='auto' or step_size=8." in solution.message
    assert np.isfinite(solution.weights).all()


def test_automatic_settings_converge_on_elevators():
    solution = dg.solve(*operator("elevators", 2000), dg.SDD(averaging=0.02), key=KEY)
    assert solution.result is dg.Result.CONVERGED
    assert "more carefully" not in solution.message


@pytest.fixture(scope="module")
def pol():
    return load_uci("pol"), published_model("pol")


def test_predictions_on_part_of_pol_are_accurate_and_calibrated(pol):
    split, model = pol
    post = model.condition(split.x[:2000], split.y[:2000], solver=dg.Cholesky(), num_samples=0)
    mean, std = post.predict(split.x_test, noise=True)
    assert dg.metrics.rmse(split.y_test, mean) < 0.25
    assert dg.metrics.nll(split.y_test, mean, std) < 0.0
    assert 0.9 < dg.metrics.coverage(split.y_test, mean, std) <= 1.0


def test_sdd_predicts_like_cholesky_on_part_of_pol(pol):
    split, model = pol
    x, y = split.x[:2000], split.y[:2000]
    exact = model.condition(x, y, solver=dg.Cholesky(), num_samples=0).mean(split.x_test)
    post = model.condition(x, y, solver=dg.SDD(averaging=0.01, num_steps=5000), num_samples=0, key=KEY)
    assert dg.metrics.rmse(exact, post.mean(split.x_test)) < 0.03


def test_similarities_of_a_thousand_molecules_are_those_of_rdkit():
    pytest.importorskip("rdkit", reason="RDKit is the oracle")
    from rdkit import Chem, DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    rows = np.random.default_rng(0).permutation(97_045)[:1000]
    molecules, x = docking_f2(), docking_f2_counts()[rows]
    smiles = [molecules.smiles[i] for i in rows]
    np.testing.assert_array_equal(fingerprints(smiles)[0], x)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=1, fpSize=1024)
    theirs = [generator.GetCountFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    ours = np.asarray(dg.Tanimoto()(jnp.asarray(x), jnp.asarray(x[:100])))
    expected = np.array([DataStructs.BulkTanimotoSimilarity(one, theirs) for one in theirs[:100]]).T
    np.testing.assert_array_equal(ours, expected.astype(np.float32))


def test_docking_scores_are_predicted_with_honest_error_bars():
    molecules, x = docking_f2(), docking_f2_counts()
    train, test = (rows[::40] for rows in random_split(len(x)))
    model = dg.GaussianProcess(dg.Tanimoto(0.743), 0.172, mean=-6.56)  # as learned from all of them
    post = model.condition(x[train], molecules.y[train], num_samples=0)
    mean, std = post.predict(x[test], noise=True)
    assert dg.metrics.r2(molecules.y[test], mean) > 0.85
    assert 0.8 < dg.metrics.coverage(molecules.y[test], mean, std, 0.9) < 0.96
