"""Files that come back as they were, or say why not."""

import json
import pickle
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, SOLVERS
from dualgp._npz import NotReadable, read, write


def posterior(n=300, solver="auto", num_samples=4, kernel=None):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 2))
    model = dg.GaussianProcess(kernel or dg.Matern32([0.7, 0.9], 1.3), noise=0.05, mean=0.4)
    return model.condition(x, np.sin(x[:, 0]), solver=solver, num_samples=num_samples, key=jax.random.key(0))


def assert_same(a, b, x, reports=True):
    for one, other in zip(a.predict(x), b.predict(x), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(a.samples(x), b.samples(x))
    if reports:
        assert a.report() == b.report()


@pytest.mark.parametrize("solver", ["auto", dg.BlockDescent(block_size=64), dg.CG(preconditioner=None)], ids=str)
def test_a_posterior_comes_back_to_the_last_bit(solver, tmp_path):
    original = posterior(solver=solver)
    dg.save(original, tmp_path / "post.dgp")
    loaded = dg.load(tmp_path / "post.dgp")
    x = np.random.default_rng(1).uniform(-3, 3, (50, 2))
    assert_same(original, loaded, x)
    np.testing.assert_array_equal(original.solution.trace.residual, loaded.solution.trace.residual)
    more = [p.update(x, np.zeros(50), key=jax.random.key(1)).mean(x) for p in (original, loaded)]
    np.testing.assert_allclose(*more, atol=1e-12 if solver == "auto" else 1e-3)


def test_the_features_of_lines_spheres_and_products_come_back_to_the_last_bit(tmp_path):
    kernel = dg.Linear(2.0, 1.0, [0.5, 1.0]) * dg.Laplace() + dg.OnSphere(dg.RBF(2.0), radius=50.0) * dg.Periodic()
    original = posterior(n=60, kernel=kernel + dg.Constant())
    dg.save(original, tmp_path / "post.dgp")
    loaded, x = dg.load(tmp_path / "post.dgp"), np.random.default_rng(1).uniform(-3, 3, (50, 2))
    assert_same(original, loaded, x)
    assert_same(original.term(2), loaded.term(2), x, reports=False)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel_comes_back(kernel, tmp_path):
    dg.save(dg.GaussianProcess(kernel, 0.1), tmp_path / "model.dgp")
    assert repr(dg.load(tmp_path / "model.dgp").kernel) == repr(kernel)


@pytest.mark.parametrize("case", SOLVERS.values(), ids=SOLVERS)
def test_every_solver_comes_back(case, tmp_path):
    estimator = dg.GPRegressor(solver=case.solver, random_state=3)
    dg.save(estimator, tmp_path / "model.dgp")
    loaded = dg.load(tmp_path / "model.dgp")
    assert eqx.tree_equal(loaded.solver, case.solver)
    assert loaded.random_state == 3


def test_a_fitted_estimator_comes_back_to_the_last_bit(tmp_path):
    x = np.random.default_rng(0).uniform(-2, 2, (100, 2))
    fitted = dg.GPRegressor(random_state=np.random.RandomState(0)).fit(x, np.sin(x[:, 0]))
    dg.save(fitted, tmp_path / "model.dgp")
    loaded = dg.load(tmp_path / "model.dgp")
    for one, other in zip(fitted.predict(x, return_std=True), loaded.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.get_params().keys() == fitted.get_params().keys()
    assert repr(loaded.kernel_) == repr(fitted.kernel_)


class Cosine(dg.Kernel):
    """A kernel of someone else."""

    def __call__(self, x1, x2):
        return jnp.cos(x1[:, :1] - x2[:, 0])

    def diagonal(self, x):
        return jnp.ones(x.shape[0], x.dtype)

    def features(self, key, num_features, d):
        raise NotImplementedError


def test_own_classes_are_built_only_when_they_are_passed(tmp_path):
    dg.save(dg.GaussianProcess(Cosine(), 0.1), tmp_path / "model.dgp")
    with pytest.raises(NotReadable, match=r"contains a Cosine.*classes=\[Cosine\]"):
        dg.load(tmp_path / "model.dgp")
    assert isinstance(dg.load(tmp_path / "model.dgp", classes=[Cosine]).kernel, Cosine)


def test_other_things_are_not_saved(tmp_path):
    for value in (3.0, [1, 2], np.zeros(3), {"a": 1}):
        with pytest.raises(TypeError, match="save writes posteriors"):
            dg.save(value, tmp_path / "model.dgp")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_said_to_be_one(share, tmp_path):
    path = tmp_path / "model.dgp"
    dg.save(posterior(), path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(NotReadable, match=r"cut short or damaged|not a dualgp file"):
        dg.load(path)


def test_a_flipped_bit_anywhere_is_found(tmp_path):
    path = tmp_path / "model.dgp"
    dg.save(posterior(n=50), path)
    good = path.read_bytes()
    x = np.zeros((3, 2))
    expected = dg.load(path).predict(x)
    for place in np.random.default_rng(0).integers(len(good), size=60):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        try:
            loaded = dg.load(path)
        except NotReadable:
            continue
        # What is not covered by a checksum does not matter: names and dates of the archive.
        for one, other in zip(loaded.predict(x), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_foreign_files_are_said_to_be_foreign(tmp_path):
    text, archive, arrays, pickled = (tmp_path / name for name in ("a.csv", "b.zip", "c.npz", "d.pkl"))
    text.write_text("x,y\n1,2\n")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("hello.txt", "hello")
    np.savez(arrays, x=np.zeros(3))
    pickled.write_bytes(pickle.dumps({"a": 1}))
    for path in (text, archive, arrays, pickled):
        with pytest.raises(NotReadable, match="is not a dualgp file"):
            dg.load(path)
    with pytest.raises(FileNotFoundError):
        dg.load(tmp_path / "nothing.dgp")


def test_a_newer_file_asks_for_an_upgrade(tmp_path):
    write(tmp_path / "model.dgp", {"format": "dualgp", "version": 99, "dualgp": "9.0", "content": {}}, {})
    with pytest.raises(NotReadable, match=r"newer dualgp \(9.0, file version 99\).*Upgrade"):
        dg.load(tmp_path / "model.dgp")


def test_a_checkpoint_is_not_a_model(tmp_path):
    write(tmp_path / "run", {"format": "dualgp-checkpoint-1"}, {})
    with pytest.raises(NotReadable, match=r"not a file written by dualgp\.save"):
        dg.load(tmp_path / "run")


def test_objects_hidden_in_a_file_are_not_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("executed",))

    path = tmp_path / "model.dgp"
    header = {"format": "dualgp", "version": 1, "content": {"array": "a0"}}
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), a0=np.array([Bomb()], dtype=object))
    with pytest.raises(NotReadable, match="damaged"):
        dg.load(path)


@pytest.mark.parametrize("content", [{"class": "Popen", "fields": {}}, {"class": "Matern32", "fields": {"x": 1}}, {}])
def test_contents_that_make_no_sense_are_refused(content, tmp_path):
    write(tmp_path / "model.dgp", {"format": "dualgp", "version": 1, "content": content}, {})
    with pytest.raises(NotReadable):
        dg.load(tmp_path / "model.dgp")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.dgp"
    dg.save(dg.GaussianProcess(dg.RBF(), 0.1), path)
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez", lambda *a, **k: (_ for _ in ()).throw(OSError("No space left on device")))
    with pytest.raises(OSError, match="No space"):
        dg.save(dg.GaussianProcess(dg.RBF(), 0.2), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_headers_hold_no_arrays(tmp_path):
    dg.save(posterior(), tmp_path / "post.dgp")
    header, arrays = read(tmp_path / "post.dgp")
    assert len(json.dumps(header)) < 5000
    assert sum(array.nbytes for array in arrays.values()) > 8 * 300 * 301 / 2  # the factor, of which half is kept
    assert eqx.is_array(arrays["a0"])


def test_a_kernel_named_like_one_of_ours_is_not_taken_for_it(tmp_path):
    impostor = type("RBF", (Cosine,), {})
    dg.save(dg.GaussianProcess(impostor(), 0.1), tmp_path / "model.dgp")
    with pytest.raises(NotReadable, match=r"contains a RBF.*classes=\[RBF\]"):
        dg.load(tmp_path / "model.dgp")
    assert isinstance(dg.load(tmp_path / "model.dgp", classes=[impostor]).kernel, Cosine)


def test_estimators_with_foreign_settings_are_saved(tmp_path):
    from sklearn.gaussian_process.kernels import RBF

    estimator = dg.GPRegressor(
        RBF(0.5), n_samples=np.int64(4), random_state=np.int64(3), checkpoint=tmp_path / "part", learn=False
    )
    x = np.linspace(0, 1, 20)[:, None]
    estimator.fit(x, x[:, 0])
    dg.save(estimator, tmp_path / "model.dgp")
    loaded = dg.load(tmp_path / "model.dgp")
    np.testing.assert_array_equal(loaded.predict(x), estimator.predict(x))
    assert loaded.random_state == 3 and loaded.n_samples == 4 and isinstance(loaded.kernel, dg.RBF)
    loaded.fit(x, x[:, 0])


def test_other_estimators_and_results_are_refused_when_they_are_saved(tmp_path):
    from sklearn.pipeline import make_pipeline

    x = np.linspace(0, 1, 20)[:, None]
    learned = dg.learn(dg.GaussianProcess(dg.RBF(), 0.1), x, x[:, 0])
    for value in (make_pipeline(dg.GPRegressor()), learned):
        with pytest.raises(TypeError, match="cannot be saved"):
            dg.save(value, tmp_path / "model.dgp")
