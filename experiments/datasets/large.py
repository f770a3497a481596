"""Large real data sets with random splits of our own: not the splits, and for some not the sets, of the paper.

| name | rows x inputs | target |
|---|---|---|
| precip | 101,270 x 3 | precipitation from year, longitude and latitude |
| covtype | 581,012 x 53 | elevation of a patch of forest from its other properties |
| etopo20 | 583,740 x 2 | relief from longitude and latitude |
| houseelectric | 2,049,258 x 11 | log active power of a household from time, voltage, intensity and sub-meters |
"""

from collections.abc import Callable

import numpy as np

from datasets.uci import Dataset, find, scaled


def load_large(name: str, *, test_share: float = 0.1, seed: int = 0) -> Dataset:
    """A data set with a random share of the rows held out, scaled like the UCI sets."""
    if name not in LOADERS:
        raise ValueError(f"There is no data set {name!r} here. Choose one of {', '.join(LOADERS)}.")
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, got {test_share!r}.")
    with np.load(find(f"{name}.npz")) as arrays:
        x, y = LOADERS[name](arrays)
    test, train = np.split(np.random.default_rng(seed).permutation(len(y)), [int(len(y) * test_share)])
    (x, x_test), (y, y_test) = scaled(x[train], x[test]), scaled(y[train], y[test])
    return Dataset(x, y, x_test, y_test)


def _precip(arrays: np.lib.npyio.NpzFile) -> tuple[np.ndarray, np.ndarray]:
    return arrays["X"], arrays["y"]


def _covtype(arrays: np.lib.npyio.NpzFile) -> tuple[np.ndarray, np.ndarray]:
    kinds = [arrays[name][:, None] == np.unique(arrays[name]) for name in ("wilderness", "soil")]
    numbers = arrays["q"].astype(np.float32)
    return np.concatenate([numbers[:, 1:], *kinds], axis=1, dtype=np.float32), numbers[:, 0]


def _etopo20(arrays: np.lib.npyio.NpzFile) -> tuple[np.ndarray, np.ndarray]:
    longitude, latitude = np.meshgrid(arrays["lon"], arrays["lat"])
    return np.stack([longitude.ravel(), latitude.ravel()], axis=1), arrays["z"].ravel().astype(np.float32)


def _houseelectric(arrays: np.lib.npyio.NpzFile) -> tuple[np.ndarray, np.ndarray]:
    minutes = np.cumsum(arrays["minute"], dtype=np.int64)
    when = np.datetime64("2006-12-16T17:24") + minutes.astype("timedelta64[m]")
    months, days = when.astype("datetime64[M]"), when.astype("datetime64[D]")
    years = when.astype("datetime64[Y]")
    columns = [
        (days - months).astype(int) + 1,
        (months - years).astype(int) + 1,
        years.astype(int),
        (when - days).astype(int) // 60,
        (when - days).astype(int) % 60,
        *(arrays[name] for name in ("reactive_m", "volt_c", "amp_d", "sub1", "sub2", "sub3")),
    ]
    return np.stack(columns, axis=1).astype(np.float32), np.log(np.maximum(arrays["active_mW"].astype(np.float32), 1.0))


Loader = Callable[[np.lib.npyio.NpzFile], tuple[np.ndarray, np.ndarray]]
LOADERS: dict[str, Loader] = {
    "precip": _precip,
    "covtype": _covtype,
    "etopo20": _etopo20,
    "houseelectric": _houseelectric,
}
