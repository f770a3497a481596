"""Files that come back as they were, or say why not."""

import dataclasses
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
from dualgp import io
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
    monkeypatch.setattr(
        zipfile.ZipFile, "open", lambda *a, **k: (_ for _ in ()).throw(OSError("No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        dg.save(dg.GaussianProcess(dg.RBF(), 0.2), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_headers_hold_no_arrays(tmp_path):
    dg.save(posterior(), tmp_path / "post.dgp")
    header, arrays = read(tmp_path / "post.dgp")
    assert len(json.dumps(header)) < 5000
    assert eqx.is_array(arrays["a0"])


def kept(tmp_path):
    """The sizes of the arrays in the file, largest first."""
    return sorted((array.size for array in read(tmp_path / "post.dgp")[1].values()), reverse=True)


def test_an_exact_fit_is_saved_in_the_size_of_its_table(tmp_path):
    x = np.random.default_rng(0).normal(size=(1000, 6))
    fitted = dg.GPRegressor(dg.Matern32(1.0), noise=0.1, learn=False, random_state=0).fit(x, np.sin(x[:, 0]))
    assert fitted.posterior_.solution.factor is not None and fitted.posterior_.num_samples == 16
    dg.save(fitted, tmp_path / "post.dgp")
    assert (tmp_path / "post.dgp").stat().st_size < 1.6 * 8 * 1000 * 7
    assert kept(tmp_path)[:4] == [6000, 1000, 1000, 201]  # inputs, weights, targets, quantiles


SMALL = {
    "exact": lambda: posterior(),
    "without functions": lambda: posterior(num_samples=0),
    "counts": lambda: counted(),
    "updated": lambda: posterior().update([[0.0, 1.0], [0.5, 0.5]], [1.0, 2.0], key=jax.random.key(4)),
    "near alone": lambda: few_far(0),
    "some far": lambda: few_far(100),
    "iterated": lambda: posterior(solver=dg.BlockDescent(block_size=64)),
}


def counted():
    x = np.random.default_rng(0).integers(0, 4, (100, 8)).astype(np.uint8)
    return dg.GaussianProcess(dg.Tanimoto(), 0.1).condition(x, x[:, 0] / 3.0, key=jax.random.key(0), num_samples=4)


def few_far(number):
    x = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    model, settings = dg.GaussianProcess(dg.Matern32(0.7), 0.05), {"num_samples": 4, "key": jax.random.key(0)}
    return model.condition(x, x[:, 0], solver=dg.BlockDescent(), num_far=number, **settings)


@pytest.mark.parametrize("kind", SMALL)
def test_what_a_file_leaves_out_comes_back_to_the_last_bit(kind, tmp_path):
    original = SMALL[kind]()
    dg.save(original, tmp_path / "post.dgp")
    loaded, sizes = dg.load(tmp_path / "post.dgp"), kept(tmp_path)
    iterated = kind in ("some far", "iterated")
    assert sum(sizes) < original.n * (original.d + (2 + 3 * original.num_samples if iterated else 2)) + 300
    x = np.asarray(original.x)[:40]
    for what in (lambda p: p.predict(x), lambda p: p.covariance(x), lambda p: p.leave_one_out()):
        for one, other in zip(what(original), what(loaded), strict=True):
            np.testing.assert_array_equal(one, other)
    if original.num_samples:
        np.testing.assert_array_equal(original.samples(x), loaded.samples(x))
    for name in ("targets", "weights"):
        np.testing.assert_array_equal(getattr(original, name), getattr(loaded, name))
    np.testing.assert_array_equal(original.solution.weights, loaded.solution.weights)
    new = x[:3] + (1 if kind == "counts" else 0.25)
    more = [p.update(new, np.zeros(3), key=jax.random.key(1)).mean(x) for p in (original, loaded)]
    np.testing.assert_array_equal(*more)


def test_functions_that_cannot_be_drawn_again_are_saved_themselves(tmp_path):
    original = posterior(num_samples=2)
    mixed = eqx.tree_at(lambda prior: prior.weights, original.prior, original.prior.weights[::-1])
    original = dataclasses.replace(original, prior=mixed)
    dg.save(original, tmp_path / "post.dgp")
    assert kept(tmp_path)[0] == original.prior.weights.size
    assert_same(original, dg.load(tmp_path / "post.dgp"), np.zeros((2, 2)))


def test_other_random_numbers_are_not_taken_for_those_that_were_saved(tmp_path):
    path = tmp_path / "post.dgp"
    dg.save(posterior(num_samples=2), path)
    header, arrays = read(path)
    drawn = header["content"]["fields"]["prior"]["fields"]
    arrays[drawn["key"]["array"]] = arrays[drawn["key"]["array"]] + np.uint32(1)
    write(path, header, arrays)
    with pytest.raises(NotReadable, match="random functions come out as others"):
        dg.load(path)


@pytest.mark.parametrize("kind", SMALL)
def test_files_that_leave_nothing_out_are_read(kind, tmp_path, monkeypatch):
    original = SMALL[kind]()
    monkeypatch.setattr(io, "compact", lambda whole: whole)  # as those of version 3 are
    dg.save(original, tmp_path / "post.dgp")
    assert_same(original, dg.load(tmp_path / "post.dgp"), np.asarray(original.x)[:9]) if original.num_samples else None


def test_arrays_are_compressed_where_that_pays_and_never_to_a_fiftieth(tmp_path):
    noise = np.random.default_rng(0).normal(size=5000)
    for compress, number, most in ((True, 1, 60_000), (False, 1, 1e9), (True, 1000, 1e9)):
        arrays = {"noise": noise, "steps": np.repeat(np.arange(5000.0), number)}
        write(tmp_path / "a", {}, arrays, compress=compress)
        size, whole = (tmp_path / "a").stat().st_size, sum(array.nbytes for array in arrays.values())
        assert size < most and whole < 50 * size and (compress and number == 1) == (size < whole)
        for name, array in read(tmp_path / "a")[1].items():
            np.testing.assert_array_equal(array, arrays[name])


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
