"""Loading and scaling, on small files made here and, where they are, on the real ones."""

import gzip
import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import dualgp as dg
from datasets import download
from datasets import load_uci as load
from datasets.uci import published_model

real_data = pytest.mark.skipif("DUALGP_DATA" not in os.environ, reason="DUALGP_DATA does not name a folder of data")
SHAPES = {
    "pol": (15000, 26),
    "elevators": (16599, 18),
    "bike": (17379, 17),
    "protein": (45730, 9),
    "keggdirected": (48827, 20),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = (5.0 + 3.0 * rng.normal(size=(200, 4))).astype(np.float32)
    x[:, 2] = 7.0
    np.savez(tmp_path / "pol.npz", X=x, y=np.arange(200, dtype=np.float32), fold=np.arange(200, dtype=np.uint8) % 10)
    published = {"pol": {"0": {"length_scale": [0.5, 1.0, 2.0, 4.0], "signal_scale": 2.0, "noise_scale": 0.1}}}
    (tmp_path / "uci_hparams.json").write_text(json.dumps(published))
    monkeypatch.setenv("DUALGP_DATA", str(tmp_path))
    return tmp_path


def test_training_rows_are_standardised_and_constant_columns_are_zero(folder):
    split = load("pol", 3)
    varying = split.x[:, [0, 1, 3]]
    np.testing.assert_allclose(varying.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(varying.std(axis=0), 1.0, atol=1e-6)
    assert (split.x[:, 2] == 0).all() and (split.x_test[:, 2] == 0).all()
    np.testing.assert_allclose([split.y.mean(), split.y.std()], [0.0, 1.0], atol=1e-6)


def test_splits_are_disjoint_and_cover_every_row(folder):
    raw = np.arange(200)
    seen = []
    for fold in range(10):
        split = load("pol", fold)
        train, test = (np.concatenate([split.y, split.y_test])[s] for s in (slice(180), slice(180, None)))
        kept = raw[raw % 10 != fold]
        recovered = np.round(test * kept.std() + kept.mean()).astype(int)
        assert len(train) == 180 and len(test) == 20
        assert not set(recovered) & set(np.round(train * kept.std() + kept.mean()).astype(int))
        seen.extend(recovered)
    assert sorted(seen) == raw.tolist()


def test_published_scales_are_standard_deviations_and_become_variances(folder):
    model = published_model("pol", 0)
    assert isinstance(model.kernel, dg.Matern32)
    assert float(model.kernel.variance) == pytest.approx(4.0)
    assert float(model.noise) == pytest.approx(0.01)
    assert model.kernel.lengthscale.tolist() == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: load("nothing"), ValueError, "no data set 'nothing' here. Choose one of pol"),
        (lambda: load("pol", 10), ValueError, "split must be 0 to 9"),
        (lambda: published_model("pol", 7), ValueError, "No hyperparameters were published"),
    ],
)
def test_what_is_not_there_is_said_plainly(folder, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A place to fetch 3droad from, with 40 rows of it."""
    source = tmp_path / "source" / "3droad"
    source.mkdir(parents=True)
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=tmp_path / "source"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(download, "SOURCE", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setitem(download.SIZES, "3droad", (40, 3))
    monkeypatch.setenv("DUALGP_DATA", str(tmp_path / "cache"))
    yield source
    server.shutdown()


def serve(source, rows, columns=4):
    table = np.random.default_rng(0).normal(size=(rows, columns))
    masks = np.arange(rows)[:, None] % 10 == np.arange(10)
    for name, array in (("data", table), ("test_mask", masks.astype(int))):
        with gzip.open(source / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, array, delimiter=",")
    return table


def test_a_set_that_is_missing_is_fetched_once_and_kept(server, tmp_path):
    table = serve(server, 40)
    split = load("3droad", 2)
    test = np.arange(40) % 10 == 2
    expected = (table[test, -1] - table[~test, -1].mean()) / table[~test, -1].std()
    np.testing.assert_allclose(split.y_test, expected, rtol=1e-5)
    for file in server.iterdir():
        file.unlink()
    np.testing.assert_array_equal(load("3droad", 2).x, split.x)
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["uci-3droad.npz"]


def test_a_set_of_another_size_is_refused_and_not_kept(server, tmp_path):
    serve(server, 30)
    with pytest.raises(ValueError, match=r"\(30, 4\).*not 40 x 4"):
        load("3droad")
    assert not (tmp_path / "cache" / "uci-3droad.npz").exists()


def test_without_a_network_it_says_what_to_do(folder, monkeypatch):
    monkeypatch.setattr(download, "SOURCE", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(FileNotFoundError, match=r"bike is not in .* could not be fetched .* set DUALGP_DATA"):
        load("bike")


@real_data
@pytest.mark.parametrize("name", SHAPES)
def test_real_data_has_its_published_shape(name):
    split, (n, d) = load(name), SHAPES[name]
    assert len(split.x) + len(split.x_test) == n
    assert split.x.shape[1] == split.x_test.shape[1] == d
    assert abs(len(split.x_test) - n / 10) <= 1
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in split)
    assert published_model(name).kernel.lengthscale.shape in ((), (d,))
