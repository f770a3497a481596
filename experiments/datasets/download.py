"""UCI sets that are not there, fetched once: from the repository that has the standard splits, at one fixed commit.

The files are gzipped CSV, inputs and then the target, and a table of ten columns that marks the test rows of a split.
No checksums were published for them. What is checked is the size that the repository states, that all numbers are
finite, and that every row is a test row of exactly one split; the copy that is kept carries checksums of its own.
"""

import io
import os
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

SOURCE = (
    "https://raw.githubusercontent.com/treforevans/uci_datasets/5d8eba8e02ce139f49c8ea51f4e283370c086b3d/uci_datasets"
)
SIZES = {
    "pol": (15_000, 26),
    "elevators": (16_599, 18),
    "bike": (17_379, 17),
    "protein": (45_730, 9),
    "keggdirected": (48_827, 20),
    "3droad": (434_874, 3),
    "song": (515_345, 90),
    "buzz": (583_250, 77),
    "houseelectric": (2_049_280, 11),
}
PARTS = {"song": ("data.csv.gz", "data1.csv.gz")}  # others are in one file
SECONDS = 60


def download(name: str, path: Path) -> None:
    """Fetch a set and keep it at `path` as `X`, `y` and `fold`, or say what to do."""
    try:
        table = np.concatenate([_fetch(f"{name}/{part}", np.float32) for part in PARTS.get(name, ("data.csv.gz",))])
        masks = _fetch(f"{name}/test_mask.csv.gz", np.float32) > 0
    except (urllib.error.URLError, TimeoutError) as error:
        raise FileNotFoundError(
            f"{name} is not in {path.parent}, and it could not be fetched ({error}). Where there is a network, run "
            f"datasets.uci({name!r}) once and copy {path.name}; or set DUALGP_DATA to the folder that has it."
        ) from None
    n, d = SIZES[name]
    if table.shape != (n, d + 1) or masks.shape != (n, 10) or not np.isfinite(table).all():
        raise ValueError(
            f"{name} came as {table.shape} with splits {masks.shape}, not {n:,} x {d + 1}. Fetch it by hand."
        )
    if not (masks.sum(axis=1) == 1).all():
        raise ValueError(f"The splits of {name} are not what they should be: some row is in none or in two of them.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".writing")
    with open(temporary, "wb") as file:
        np.savez_compressed(file, X=table[:, :-1], y=table[:, -1], fold=masks.argmax(axis=1).astype(np.uint8))
    os.replace(temporary, path)


def _fetch(part: str, dtype: type) -> np.ndarray:
    import gzip

    with urllib.request.urlopen(f"{SOURCE}/{part}", timeout=SECONDS) as answer:
        text = io.TextIOWrapper(gzip.GzipFile(fileobj=io.BytesIO(answer.read())))
    return np.loadtxt(text, delimiter=",", dtype=dtype, ndmin=2)
