"""Files of numbers of which a process reads its own rows."""

import numpy as np
import pytest

from dualgp.columns.tables import read_table
from dualgp.table.row_files import open_rows

TABLE = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


@pytest.fixture(params=["npy", "parquet"])
def file(request, tmp_path):
    path = tmp_path / f"data.{request.param}"
    if request.param == "npy":
        np.save(path, TABLE)
    else:
        pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
        from pyarrow import parquet

        columns = {str(i): TABLE[:, i] for i in range(3)}
        parquet.write_table(pyarrow.table(columns), path, row_group_size=7)
    return open_rows(path)


@pytest.mark.parametrize("rows", [slice(0, 50), slice(0, 25), slice(25, 50), slice(13, 15), slice(50, 50), slice(6, 7)])
def test_any_range_of_rows_can_be_read(file, rows):
    np.testing.assert_array_equal(file.numbers(rows, ["2", "0"]), TABLE[rows][:, [2, 0]])


def test_shares_make_the_whole_and_the_rest_of_the_package_reads_the_same(file):
    parts = [file.numbers(slice(start, min(start + 9, 50)), file.names) for start in range(0, 50, 9)]
    np.testing.assert_array_equal(np.concatenate(parts), TABLE)
    table = read_table(file.path)
    np.testing.assert_array_equal(np.stack([table.column(name).to_numpy() for name in file.names], axis=1), TABLE)


def test_inputs_are_all_columns_but_the_target_and_those_left_out(file):
    assert file.check("1") == ("0", "2")
    assert file.check("1", ["0"]) == ("2",)
    with pytest.raises(ValueError, match="no column 'price'"):
        file.check("price")
    with pytest.raises(ValueError, match="to predict from"):
        file.check("1", ["0", "2"])


def test_missing_values_are_refused_with_their_row_in_the_file(tmp_path):
    array = TABLE.copy()
    array[30, 1] = np.nan
    np.save(tmp_path / "data.npy", array)
    with pytest.raises(ValueError, match=r"'1'.*row 31"):
        open_rows(tmp_path / "data.npy").numbers(slice(25, 50), ["0", "1"])


def test_text_and_files_that_cannot_be_read_in_parts_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1.0], "b": ["x"]}), tmp_path / "text.parquet")
    with pytest.raises(ValueError, match="are text"):
        open_rows(tmp_path / "text.parquet").check("a")
    with pytest.raises(ValueError, match="in parts"):
        open_rows(tmp_path / "data.csv")
    np.save(tmp_path / "vector.npy", np.zeros(3))
    with pytest.raises(ValueError, match="two-dimensional"):
        open_rows(tmp_path / "vector.npy")


def test_row_numbers_of_pandas_are_not_data(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 2.0]})[1:]
    frame.to_parquet(tmp_path / "frame.parquet", index=True)
    assert open_rows(tmp_path / "frame.parquet").check("y") == ("a",)
