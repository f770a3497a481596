"""Table files with a flipped bit or without their end: numbers or one sentence, whatever their readers raise."""

import numpy as np
import pytest

from dualgp.columns.tables import read_table
from dualgp.table.row_files import open_rows

parquet = pytest.importorskip("pyarrow.parquet", reason="tables need pyarrow")
X = np.random.default_rng(0).normal(size=(24, 3))


def write(path):
    if path.suffix == ".npy":
        np.save(path, X)
    else:
        import pyarrow

        parquet.write_table(pyarrow.table({str(i): X[:, i] for i in range(3)}), path)


def read_rows(path):
    file = open_rows(path)
    return file.read(slice(0, file.num_rows), file.names)


@pytest.mark.parametrize("read", [read_table, read_rows])
@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_damaged_files_give_numbers_or_a_sentence(ending, read, tmp_path):
    path, rng, sentences = tmp_path / f"table{ending}", np.random.default_rng(0), []
    write(path)
    good = path.read_bytes()
    for number in range(150):
        place = int(rng.integers(130 if ending == ".npy" else len(good)))  # of an .npy file, in its header
        flipped = good[:place] + bytes([good[place] ^ (1 << int(rng.integers(8)))]) + good[place + 1 :]
        path.write_bytes(flipped if number % 5 else good[:place])
        try:
            read(path)
        except ValueError as error:
            sentences.append(str(error))
    assert len(sentences) > 60
    assert all(sentence.endswith(".") and len(sentence.splitlines()) == 1 for sentence in sentences), sentences


@pytest.mark.parametrize("dtype", [">f8", ">i4", "float16", "bool"])
def test_arrays_of_any_numbers_are_read(dtype, tmp_path):
    array = np.arange(6).reshape(3, 2).astype(dtype)
    np.save(tmp_path / "table.npy", array)
    table = read_table(tmp_path / "table.npy")
    found = np.stack([table.column(name).to_numpy() for name in "01"], axis=1)
    np.testing.assert_array_equal(found, array.astype(float))


def test_an_array_of_text_gets_a_sentence(tmp_path):
    np.save(tmp_path / "table.npy", np.array([["a", "b"]]))
    with pytest.raises(ValueError, match="two-dimensional array of numbers"):
        read_table(tmp_path / "table.npy")
