"""`python tests/attack/fuzz.py model|checkpoint|table -max_total_time=1800`: coverage-guided, needs atheris (opt-in).

Checksums are switched off, so that what lies behind them is reached: only sentences may come out. A model may also come
out; it must not be NaN.
"""

import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dualgp", "zipfile"]):
    import numpy as np

    import dualgp as dg
    from dualgp import _npz
    from dualgp.checkpoints import Checkpoint
    from dualgp.columns.encoding import make_encoding
    from dualgp.columns.tables import read_table

warnings.simplefilter("ignore")
FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
STATE = (np.zeros(0), np.zeros((0, 0)))


class Same(str):
    """Equal to any other checksum."""

    def __ne__(self, other: object) -> bool:
        return False


def model(content: bytes) -> None:
    path = FOLDER / "model.dgp"
    path.write_bytes(content)
    try:
        loaded = dg.load(path)
    except _npz.NotReadable:
        return
    if hasattr(loaded, "mean") and hasattr(loaded, "d"):
        assert np.isfinite(loaded.mean(np.zeros((1, loaded.d)))).all()


def checkpoint(content: bytes) -> None:
    path = FOLDER / "state"
    path.write_bytes(content)
    try:
        Checkpoint(path, 0).load(STATE)
    except ValueError as error:
        assert "elete it" in str(error), error


def table(content: bytes) -> None:
    path = FOLDER / "table.csv"
    path.write_bytes(content)
    try:
        found = read_table(path)
        encoding = make_encoding(found, found.column_names[-1])
        x = encoding.x(found)
    except ValueError:
        return
    assert np.isfinite(x).all()


def seeds(kind: str) -> Path:
    """A folder of good files to begin with."""
    place = FOLDER / "seeds"
    place.mkdir()
    if kind == "table":
        (place / "a").write_text("a,b,c\n1,2,3\n4,5,6\n")
        (place / "b").write_text('a;b;c\n1.5;"x";2020-01-31\n;y;NA\n')
    elif kind == "checkpoint":
        Checkpoint(place / "a", 0).save((np.zeros(2), np.zeros((2, 1))), {"is_learned": False})
    else:
        gp = dg.GaussianProcess(dg.Matern32([1.0, 2.0]) + dg.RBF(), 0.1)
        dg.save(gp, place / "a")
        dg.save(dg.GPRegressor(solver=dg.SDD()), place / "b")
        dg.save(gp.condition(np.eye(2), np.ones(2), num_samples=0), place / "c")
    return place


if __name__ == "__main__":
    kind = sys.argv.pop(1)
    place = seeds(kind)
    _npz._checksum = lambda header, arrays: Same()
    zipfile.ZipExtFile._update_crc = lambda self, data: None
    atheris.Setup(
        [sys.argv[0], *sys.argv[1:], str(place)], {"model": model, "checkpoint": checkpoint, "table": table}[kind]
    )
    atheris.Fuzz()
