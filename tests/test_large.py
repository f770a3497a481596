"""Large sets: their files as arrays, on small files made here and, where they are, on the real ones."""

import os

import numpy as np
import pytest

from datasets import load_large

real_data = pytest.mark.skipif("DUALGP_DATA" not in os.environ, reason="DUALGP_DATA does not name a folder of data")
SHAPES = {"precip": (101_270, 3), "covtype": (581_012, 53), "etopo20": (583_740, 2), "houseelectric": (2_049_258, 11)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "precip.npz", X=rng.normal(size=(50, 3)), y=rng.normal(size=50))
    kinds = {"wilderness": np.arange(50, dtype=np.uint8) % 4, "soil": np.arange(50, dtype=np.uint8) % 5}
    np.savez(tmp_path / "covtype.npz", q=rng.integers(0, 99, (50, 10)).astype(np.int16), **kinds)
    np.savez(
        tmp_path / "etopo20.npz", z=np.arange(12, dtype=np.int16).reshape(3, 4), lon=np.arange(4.0), lat=np.arange(3.0)
    )
    meters = {
        name: rng.integers(1, 99, 3000)
        for name in ("active_mW", "reactive_m", "volt_c", "amp_d", "sub1", "sub2", "sub3")
    }
    np.savez(tmp_path / "houseelectric.npz", minute=np.r_[0, np.ones(2999)].astype(np.int16), **meters)
    monkeypatch.setenv("DUALGP_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [("precip", 50, 3), ("covtype", 50, 18), ("etopo20", 12, 2), ("houseelectric", 3000, 11)],
)
def test_a_set_is_split_and_scaled_by_its_training_rows(name, rows, columns, folder):
    data = load_large(name, test_share=0.2)
    assert data.x.shape == (rows - rows // 5, columns) and data.x_test.shape == (rows // 5, columns)
    np.testing.assert_allclose(data.y.mean(), 0.0, atol=1e-5)
    np.testing.assert_allclose(data.y.std(), 1.0, rtol=1e-5)
    assert np.array_equal(load_large(name, test_share=0.2).y, data.y)
    assert not np.array_equal(load_large(name, test_share=0.2, seed=1).y, data.y)


def test_a_grid_keeps_its_places(folder):
    data = load_large("etopo20", test_share=0.1)
    x, y = np.concatenate([data.x, data.x_test]), np.concatenate([data.y, data.y_test])
    fit, *_ = np.linalg.lstsq(np.c_[x, np.ones(12)], y, rcond=None)
    np.testing.assert_allclose(np.c_[x, np.ones(12)] @ fit, y, atol=1e-5)  # z = longitude + 4 latitude


def test_minutes_become_a_calendar(folder):
    data = load_large("houseelectric", test_share=0.01)
    hours = np.unique(data.x[:, 3])
    assert len(hours) == 24 and len(np.unique(data.x[:, 4])) == 60
    assert len(np.unique(data.x[:, 0])) == 3  # 16, 17 and 18 December


def test_other_names_and_shares_are_refused(folder):
    with pytest.raises(ValueError, match="Choose one of precip"):
        load_large("3droad")
    with pytest.raises(ValueError, match="test_share"):
        load_large("precip", test_share=1.0)


@real_data
@pytest.mark.parametrize("name", SHAPES)
def test_the_real_files_have_their_size(name):
    data = load_large(name)
    assert (len(data.x) + len(data.x_test), data.x.shape[1]) == SHAPES[name]
    assert np.isfinite(data.x).all() and np.isfinite(data.y).all()
