"""UCI regression data with the standard 90/10 splits, and the hyperparameters published for them."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets.download import SIZES, download
from dualgp.gp import GaussianProcess
from dualgp.kernels import Matern32

NAMES = tuple(SIZES)


class Dataset(NamedTuple):
    """A split, inputs and targets scaled to mean 0 and (population) standard deviation 1 on its training rows."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def data_folder() -> Path:
    """Where data files are looked for: `DUALGP_DATA`, or the user's cache."""
    return Path(os.environ.get("DUALGP_DATA") or Path.home() / ".cache" / "dualgp")


def load_uci(name: str, split: int = 0) -> Dataset:
    """Split 0 to 9 of the data set: row i is a test row of split fold[i] and a training row of every other.

    Read from `name.npz` or `uci-name.npz` in `DUALGP_DATA` (or the user's cache), else fetched and kept there.
    """
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r} here. Choose one of {', '.join(NAMES)}.")
    if split not in range(10):
        raise ValueError(f"split must be 0 to 9, got {split!r}.")
    with np.load(_file(name)) as arrays:
        x, y, test = arrays["X"], arrays["y"], arrays["fold"] == split
    x, x_test = scaled(x[~test], x[test])
    y, y_test = scaled(y[~test], y[test])
    return Dataset(x, y, x_test, y_test)


def _file(name: str) -> Path:
    """The file with the standard splits, fetched if it is missing. Other versions of a set have no `fold`."""
    for path in (data_folder() / f"{name}.npz", data_folder() / f"uci-{name}.npz"):
        if path.exists():
            with np.load(path) as arrays:
                if "fold" in arrays.files:
                    return path
    path = data_folder() / f"uci-{name}.npz"
    download(name, path)
    return path


def published_model(name: str, split: int = 0) -> GaussianProcess:
    """Matern-3/2 with the hyperparameters published for a split (0 to 4)."""
    table = json.loads(find("uci_hparams.json").read_text())
    entry = table.get(name, {}).get(str(split))
    if entry is None:
        raise ValueError(f"No hyperparameters were published for split {split!r} of {name!r}.")
    kernel = Matern32(entry["length_scale"], entry["signal_scale"] ** 2)
    return GaussianProcess(kernel, noise=entry["noise_scale"] ** 2)


def find(filename: str) -> Path:
    """The data file, or an error that says where to put it."""
    path = data_folder() / filename
    if not path.exists():
        raise FileNotFoundError(
            f"{filename} is not in {data_folder()}. Put it there, or set DUALGP_DATA to the folder that has it."
        )
    return path


def scaled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays, scaled by the mean and standard deviation of the first."""
    mean, std = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
    std = np.where(std > 0, std, 1.0)
    return ((train - mean) / std).astype(np.float32), ((test - mean) / std).astype(np.float32)
