"""Tables as people have them."""

import gzip
import subprocess
import sys

import numpy as np
import pandas
import polars
import pytest

from dualgp.columns.encoding import complete_rows, make_encoding
from dualgp.columns.tables import as_table, read_table
from dualgp.table.model import fit_table


def written(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_text_times_and_truth_values_become_inputs():
    table = as_table(
        {
            "size": [1, 2, 3, 4],
            "city": ["Bern", "Basel", "Bern", "Genf"],
            "garden": ["yes", "no", "no", "yes"],
            "sold": np.array(["2020-01-01", "2020-01-03", "2021-01-01", "2022-01-01"], "datetime64[s]"),
            "new": [True, False, True, True],
            "price": [1.0, 2.0, 3.0, 4.0],
        }
    )
    encoding = make_encoding(table, "price")
    x = dict(zip(encoding.inputs, encoding.x(table).T, strict=True))
    season = ["sold (season), cos", "sold (season), sin"]
    week = ["sold (weekday), cos", "sold (weekday), sin"]
    cities = ["city = Basel", "city = Bern", "city = Genf"]
    assert list(x) == ["size", *cities, "garden = yes", "sold", *week, *season, "new"]
    assert encoding.widths == (1, 3, 1, 1, 2, 2, 1)
    np.testing.assert_array_equal(x["city = Bern"], [1, 0, 1, 0])
    np.testing.assert_array_equal(x["garden = yes"], [1, 0, 0, 1])
    np.testing.assert_array_equal(np.diff(x["sold"]), [2, 364, 365])
    np.testing.assert_allclose(x[season[0]] ** 2 + x[season[1]] ** 2, 1.0)
    np.testing.assert_allclose(x[season[0]][2:], x[season[0]][0], atol=0.02)  # the first of January every year
    np.testing.assert_array_equal(x["new"], [1, 0, 1, 1])
    np.testing.assert_array_equal(encoding.y(table), [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x,y\n1,2\n3,4\n"),
        ("a.tsv", "x\ty\n1\t2\n3\t4\n"),
        ("a.txt", "x;y\n1;2\n3;4\n"),
        ("bom.csv", "\ufeffx,y\n1,2\n3,4\n"),
        ("windows.csv", "x,y\r\n1,2\r\n3,4\r\n"),
        ("quoted.csv", '"x","y"\n"1","2"\n"3","4"\n'),
    ],
)
def test_text_in_many_shapes_is_the_same_table(name, text, tmp_path):
    table = read_table(written(tmp_path, text, name))
    assert table.column_names == ["x", "y"]
    np.testing.assert_array_equal(make_encoding(table, "y").x(table), [[1], [3]])


def test_compressed_text_and_parquet_are_read(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n3,4\n"))
    frame = pandas.DataFrame({"x": [1, 3], "y": [2, 4]})
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.csv.gz", tmp_path / "a.parquet", frame, polars.from_pandas(frame)):
        table = as_table(source)
        np.testing.assert_array_equal(make_encoding(table, "y").x(table), [[1], [3]])


def test_whole_numbers_may_be_followed_by_others_far_down(tmp_path):
    rows = ["1,2"] * 200_000 + ["1.5,2.5"] + ["?,3"]
    table = read_table(written(tmp_path, "x,y\n" + "\n".join(rows) + "\n"))
    encoding = make_encoding(table, "y")
    assert encoding.x(table)[200_000, 0] == 1.5
    assert encoding.x(table)[200_001].tolist() == [1.0, 1.0]  # the median, and that it was missing


def test_text_far_down_a_column_of_numbers_makes_it_text(tmp_path):
    table = read_table(written(tmp_path, "x,y\n" + "1,2\n" * 200_000 + "many,3\n"))
    assert make_encoding(table, "y").columns[0].categories == ("1", "many")


def test_missing_values_are_filled_dropped_or_refused_and_always_explained(tmp_path):
    table = read_table(written(tmp_path, "x,c,y\n1,a,1\n,b,2\n3,,3\n5,a,\n"))
    filled = make_encoding(table, "y", missing="fill")
    assert filled.inputs == ("x", "x is missing", "c = a", "c = b", "c = missing")
    np.testing.assert_array_equal(filled.x(table)[:, :2], [[1, 0], [3, 1], [3, 0], [5, 0]])
    assert "1 missing value(s): filled with the median 3" in filled.notes[0]
    assert complete_rows(table, filled).tolist() == [True, True, True, False]
    assert complete_rows(table, make_encoding(table, "y", missing="drop")).tolist() == [True, False, True, False]
    with pytest.raises(ValueError, match=r"'x' has 1 missing value\(s\), the first in row 2.*fill.*drop"):
        make_encoding(table, "y", missing="error")


def test_new_tables_may_have_other_orders_but_not_other_columns():
    encoding = make_encoding(as_table({"a": [1.0, 2.0], "c": ["u", "v"], "y": [0.0, 1.0]}), "y")
    np.testing.assert_array_equal(encoding.x(as_table({"c": ["v"], "a": [5.0]})), [[5.0, 1.0]])
    with pytest.raises(ValueError, match="no column 'c', which the model was fitted with"):
        encoding.x(as_table({"a": [1.0]}))
    with pytest.raises(
        ValueError, match=r"'a' has 1 missing value\(s\), the first in row 2; the model was fitted without"
    ):
        encoding.x(as_table({"a": [1.0, None], "c": ["u", "v"]}))
    unseen = as_table({"a": [1.0], "c": ["w"]})
    assert encoding.x(unseen).tolist() == [[1.0, 0.5]]
    assert "'c' has values unknown to the model, such as 'w'" in encoding.unseen(unseen)[0]


def test_columns_that_say_nothing_are_left_out():
    table = as_table(
        {"a": [1.0, 2.0], "same": [3.0, 3.0], "always": ["u", "u"], "empty": [None, None], "y": [0.0, 1.0]}
    )
    encoding = make_encoding(table, "y")
    assert encoding.inputs == ("a",)
    (note,) = encoding.notes
    assert "'same' (constant), 'always' (always 'u'), 'empty' (empty)" in note


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": [1.0, 2.0]}, "No column is left"),
        ({"x": [1.0, 2.0]}, "no column 'y'"),
        ({"id": [f"row {i}" for i in range(100)], "y": list(range(100))}, "left.*text with 100 different values"),
        ({"x": [1.0, np.inf], "y": [1.0, 2.0]}, "infinite values, the first in row 2"),
    ],
)
def test_tables_that_cannot_be_used_are_explained(columns, message):
    with pytest.raises(ValueError, match=message):
        table = as_table(columns)
        make_encoding(table, "y").x(table)


def test_text_as_target_is_explained():
    table = as_table({"x": [1.0, 2.0], "y": ["high", "low"]})
    with pytest.raises(ValueError, match=r"'y'.*does not hold numbers"):
        make_encoding(table, "y").y(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("1,2\n3,4\n", "Add a line of column names"), ("x,y\n1,2\n3\n", "cannot be")],
)
def test_files_that_are_no_tables_are_explained(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, text))


def test_a_large_file_takes_a_few_times_its_size_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "large.csv"
    block = "\n".join(",".join(f"{v:.6f}" for v in row) for row in rng.normal(size=(10_000, 9)))
    path.write_text(",".join("abcdefgh") + ",y\n" + (block + "\n") * 100)
    code = (
        "import sys, resource; from dualgp.columns.tables import *; from dualgp.columns.encoding import *;"
        "size = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024;"
        "import pyarrow.csv, pyarrow.parquet; before = size(); table = read_table(sys.argv[1]);"
        "encoding = make_encoding(table, 'y'); x = encoding.x(table); print(size() - before, x.shape[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    taken, rows = map(int, done.stdout.split())
    assert rows == 1_000_000
    assert taken < 4 * path.stat().st_size


def test_the_row_numbers_of_a_frame_are_not_data(tmp_path):
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]})[lambda frame: frame.a != 2]
    frame.to_parquet(tmp_path / "rows.parquet")
    for source in (frame, tmp_path / "rows.parquet"):
        assert make_encoding(as_table(source), "y").inputs == ("a",)


def test_times_of_every_kind_become_days(tmp_path):
    path = written(tmp_path, "t,h,y\n2024-01-01 10:00:00.123456,06:00:00,1\n2024-01-02 10:00:00.123456,12:00:00,2\n")
    table = read_table(path)
    encoding = make_encoding(table, "y")
    assert encoding.inputs == ("t", "h (time of day), cos", "h (time of day), sin")
    np.testing.assert_allclose(encoding.x(table)[:, 0], 19723 + np.array([0, 1]) + (10 * 3600 + 0.123456) / 86400)
    np.testing.assert_allclose(encoding.x(table)[:, 1:], [[0, 1], [-1, 0]], atol=1e-9)  # a quarter, then a half
    frame = pandas.DataFrame({"d": pandas.to_timedelta([1, 3], unit="D"), "big": [2**60, 2**61], "y": [0.0, 1.0]})
    table = as_table(frame)
    np.testing.assert_allclose(make_encoding(table, "y").x(table), [[1.0, 2.0**60], [3.0, 2.0**61]])


def test_categories_of_both_libraries_are_text():
    for frame in (
        pandas.DataFrame({"c": pandas.Categorical(["u", "v", "u"]), "y": [0.0, 1.0, 2.0]}),
        polars.DataFrame({"c": ["u", "v", "u"], "y": [0.0, 1.0, 2.0]}).with_columns(
            polars.col("c").cast(polars.Categorical)
        ),
    ):
        table = as_table(frame)
        np.testing.assert_array_equal(make_encoding(table, "y").x(table), [[0.0], [1.0], [0.0]])


def test_text_is_text_in_every_file(tmp_path):
    encoding = make_encoding(read_table(written(tmp_path, "g,h,y\n01,True,1\n02,False,2\n1A,maybe,3\n")), "y")
    table = read_table(written(tmp_path, "g,h\n01,True\n", "new.csv"), encoding.text)
    np.testing.assert_array_equal(encoding.x(table), [[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]])


def test_what_is_neither_of_two_is_halfway_between_them():
    encoding = make_encoding(as_table({"c": ["a", "b", "a"], "y": [1.0, 2.0, 3.0]}), "y")
    table = as_table({"c": ["a", "b", "zzz", None]})
    np.testing.assert_array_equal(encoding.x(table)[:, 0], [0.0, 1.0, 0.5, 0.5])
    assert "halfway" in encoding.unseen(table)[0]


@pytest.mark.parametrize("num", [3, 2])
def test_an_unknown_category_is_as_far_from_all_known_ones_as_they_are_from_each_other(num):
    table = as_table({"c": ["u", "v", "w"][:num] * 2, "y": [1.0, 2.0, 3.0][:num] * 2})
    encoding = make_encoding(table, "y")
    x = encoding.x(as_table({"c": [*["u", "v", "w"][:num], "new"]}))
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)[np.triu_indices(num + 1, 1)]
    np.testing.assert_allclose(distances, np.sqrt(2.0) if num == 3 else [1.0, 0.5, 0.5])


def test_the_error_bar_of_an_unknown_category_is_as_wide_as_categories_differ():
    rng = np.random.default_rng(0)
    effects = {"u": 0.0, "v": 10.0, "w": -5.0, "z": 4.0, "q": -9.0}
    c, a = rng.choice(list(effects), 100), rng.uniform(0, 5, 100)
    y = np.array([effects[value] for value in c]) + np.sin(a) + 0.1 * rng.normal(size=100)
    model = fit_table({"a": a, "c": c, "y": y}, "y", random_state=0)
    with pytest.warns(UserWarning, match="unknown to the model"):
        assert 3.0 < model.predict({"a": [2.5], "c": ["new"]})["std"][0] < 12.0
    assert model.predict({"a": [2.5], "c": ["u"]})["std"][0] < 0.5


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([*map(str, range(20)), "unknown"], "unknown"),
        ([f"{i},5" for i in range(20)], "0,5"),
        ([f"{i} %" for i in range(20)], "0 %"),
        ([f"{i + 1:02}.02.2020" for i in range(20)], "01.02.2020"),
        ([f"2020-01-{i + 1:02}" for i in range(20)] + ["0000-00-00"], "0000-00-00"),
    ],
)
def test_numbers_and_dates_that_are_not_read_as_such_are_refused(values, odd):
    table = as_table({"a": values * 2, "y": np.arange(2.0 * len(values))})
    with pytest.raises(ValueError, match=f"looks like numbers or dates, but '{odd}' in row"):
        make_encoding(table, "y")
    make_encoding(as_table({"a": ["1", "2", "3 or more"] * 20, "y": np.arange(60.0)}), "y")
    make_encoding(as_table({"a": [*map(str, range(20)), None] * 2, "y": np.arange(42.0)}), "y")  # text, as one wishes


def test_text_that_differs_in_every_row_is_left_out_with_a_note():
    table = as_table({"name": [f"n{i}" for i in range(30)], "a": np.arange(30), "y": np.arange(30.0)})
    encoding = make_encoding(table, "y")
    assert encoding.inputs == ("a",) and "'name' (text with 30 different values in 30 rows)" in encoding.notes[0]


def test_all_columns_that_are_not_meant_as_they_stand_are_named_at_once():
    odd = [*map(str, range(20)), "?"]
    table = as_table({"a": odd, "b": odd, "c": range(21), "y": np.arange(21.0)})
    with pytest.raises(ValueError, match=r"'a' looks like numbers.*'b' looks like numbers"):
        make_encoding(table, "y")


def _many(rng, n, levels):
    """Text with many values, whose effects on y are drawn from N(0, 1)."""
    effects = rng.normal(size=levels)
    codes = rng.integers(0, levels, n)
    y = effects[codes] + 0.5 * rng.normal(size=n)
    return effects, codes, as_table({"c": [f"level {code:04}" for code in codes], "a": rng.normal(size=n), "y": y})


def test_text_with_many_values_is_one_group_of_effects_that_shrink():
    effects, _, table = _many(np.random.default_rng(0), 3000, 200)
    encoding = make_encoding(table, "y")
    assert encoding.widths == (2, 1)
    fitted = encoding.fit(table, encoding.y(table))[0]
    column = fitted.columns[0]
    scale = encoding.y(table).std()
    assert np.corrcoef(column.effects[:-1], effects)[0, 1] > 0.95
    assert column.effects[-1] == 0.0 and column.doubts[-1] > 2 * column.doubts[:-1].max()
    # An effect is off by its doubt: 15 rows with a noise of 0.5 and a prior of variance 1.
    error = (column.effects[:-1] - (effects - np.mean(encoding.y(table))) / scale) / column.doubts[:-1]
    assert 0.8 < np.sqrt(np.mean(error**2)) < 1.2
    unknown = fitted.x(as_table({"c": ["never seen"], "a": [0.0]}))
    np.testing.assert_array_equal(unknown[0, :2], [0.0, column.doubts[-1]])
    assert "'never seen'" in fitted.unseen(as_table({"c": ["never seen"], "a": [0.0]}))[0]


@pytest.mark.parametrize("others", [False, True])
def test_the_effect_that_is_an_input_of_a_row_does_not_know_its_target(others):
    rng = np.random.default_rng(1)
    codes, more = rng.integers(0, 400, 1200), rng.integers(0, 300, 1200)
    columns = {"c": [f"level {code}" for code in codes], "a": rng.normal(size=1200), "y": rng.normal(size=1200)}
    table = as_table(columns | ({"d": [f"kind {code}" for code in more]} if others else {}))
    encoding = make_encoding(table, "y")
    y, place = encoding.y(table), encoding.places["c"]
    fitted, x = encoding.fit(table, y)
    assert np.corrcoef(fitted.x(table)[:, place.start], y)[0, 1] > 0.2  # which an effect with the row itself does
    assert abs(np.corrcoef(x[:, place.start], y)[0, 1]) < 0.08
    changed = y.copy()
    changed[7] += 100.0
    again = encoding.fit(table, changed)[1]
    near, far = (values[7, place.start] * np.std(target) for values, target in ((x, y), (again, changed)))
    assert abs(near - far) < 0.5  # only the scale and the variances have changed


def test_there_may_be_thousands_of_values():
    _, _, table = _many(np.random.default_rng(2), 20_000, 3000)
    encoding = make_encoding(table, "y")
    x = encoding.fit(table, encoding.y(table))[1]
    assert x.shape == (20_000, 3)
    assert np.corrcoef(x[:, 0], encoding.y(table))[0, 1] > 0.7


def test_frequent_values_are_points_of_their_own_with_a_lengthscale_of_their_own():
    rng = np.random.default_rng(0)
    table = as_table({"c": rng.choice(list("abcdef"), 600), "a": rng.normal(size=600), "y": rng.normal(size=600)})
    encoding = make_encoding(table, "y")
    assert encoding.widths == (2, 6, 1)
    assert encoding.places["c"] == slice(0, 8)
    fitted, x = encoding.fit(table, encoding.y(table))
    np.testing.assert_array_equal(x, fitted.x(table))


def _places(rng, follows_order):
    """200 numbered places, what is known of each, and a target that depends on which it is."""
    places, a = rng.integers(0, 200, 4000), rng.normal(size=4000)
    level = np.sin(np.arange(200) / 30) if follows_order else rng.normal(size=200)
    return places, as_table({"place": places, "a": a, "y": level[places] + a + 0.5 * rng.normal(size=4000)})


def test_whole_numbers_whose_effects_do_not_follow_their_order_are_codes():
    places, table = _places(np.random.default_rng(0), follows_order=False)
    made = make_encoding(table, "y")
    encoding, x = made.fit(table, made.y(table))
    assert encoding.inputs == ("place (effect)", "place (doubt)", "place", "a")
    assert encoding.widths == (2, 1, 1) and "'place' has numbers" in encoding.notes[-1]
    np.testing.assert_array_equal(x[:, 2], places)
    again = encoding.x(table)
    np.testing.assert_array_equal(again[:, 2:], x[:, 2:])
    assert np.corrcoef(again[:, 0], x[:, 0])[0, 1] > 0.95  # without the row itself
    unknown = encoding.x(as_table({"place": [777], "a": [0.0]}))
    np.testing.assert_array_equal(unknown[0, 1:], [encoding.columns[0].doubts[-1], 777.0, 0.0])
    assert encoding.doubt(unknown)[0] > 0
    assert "'777'" in encoding.unseen(as_table({"place": [777], "a": [0.0]}))[0]


def test_whole_numbers_whose_effects_follow_their_order_are_numbers():
    table = _places(np.random.default_rng(0), follows_order=True)[1]
    made = make_encoding(table, "y")
    encoding = made.fit(table, made.y(table))[0]
    assert encoding.inputs == ("place", "a") and encoding.notes == made.notes


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_skewed_numbers_become_logarithms(least):
    values = np.round(np.random.default_rng(0).lognormal(3, 2, 1000)) + least
    values[0] = least
    table = as_table({"a": values, "b": np.random.default_rng(1).normal(size=1000), "y": values})
    encoding = make_encoding(table, "y")
    shift = 1.0 - least  # the smallest of them that is positive
    np.testing.assert_allclose(encoding.x(table)[:, 0], np.log(values + shift))
    assert encoding.notes == ("Column 'a' is skewed: its logarithm is used.",)
    below = encoding.x(as_table({"a": [-5.0], "b": [0.0]}))
    np.testing.assert_allclose(below[0, 0], np.log(least + shift))  # as the smallest
    scale = encoding.columns[0].scale
    np.testing.assert_allclose(scale.inverse(scale(values)), values, atol=1e-9)


def test_ordered_categories_are_ranks():
    sizes = pandas.Categorical(
        ["small", "large", "medium", None], categories=["small", "medium", "large"], ordered=True
    )
    encoding = make_encoding(as_table(pandas.DataFrame({"c": sizes, "y": [1.0, 2.0, 3.0, 4.0]})), "y")
    np.testing.assert_array_equal(
        encoding.x(as_table({"c": ["small", "medium", "large", None]})), [[0, 0], [1, 0], [2, 0], [1, 1]]
    )
    grades = polars.Enum(["low", "high"])
    frame = polars.DataFrame({"c": ["low", "high"], "y": [1.0, 2.0]}).with_columns(polars.col("c").cast(grades))
    np.testing.assert_array_equal(make_encoding(as_table(frame), "y").x(as_table(frame)), [[0.0], [1.0]])


def test_missing_dates_are_in_the_middle_of_the_circles():
    days = np.array(["2020-01-01", "2021-03-01", "NaT", "2022-07-04"], "datetime64[s]")
    encoding = make_encoding(as_table({"t": days, "y": np.arange(4.0)}), "y")
    x = dict(zip(encoding.inputs, encoding.x(as_table({"t": days})).T, strict=True))
    assert x["t (season), cos"][2] == x["t (season), sin"][2] == 0.0 and x["t is missing"].tolist() == [0, 0, 1, 0]


def test_times_and_numbers_are_not_exchanged():
    dates = np.array(["2020-01-01", "2020-01-03", "2021-01-01"], "datetime64[s]")
    encoding = make_encoding(as_table({"t": dates, "a": [1, 2, 3], "y": [1.0, 2.0, 3.0]}), "y")
    with pytest.raises(ValueError, match="'t' held times in the fitted table"):
        encoding.x(as_table({"t": [1995], "a": [1]}))
    with pytest.raises(ValueError, match="'a' held numbers in the fitted table"):
        encoding.x(as_table({"t": dates[:1], "a": dates[:1]}))


def test_columns_of_the_same_name_are_a_sentence(tmp_path):
    encoding = make_encoding(as_table({"a": [1, 2], "y": [1.0, 2.0]}), "y")
    twice = read_table(written(tmp_path, "a,a\n1,2\n"))
    with pytest.raises(ValueError, match="2 columns called 'a'"):
        encoding.x(twice)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.csv", "a,y\nZürich,1\n".encode("latin-1"), "not text in UTF-8"),
        ("header.csv", "Fläche,y\n1,1\n".encode("latin-1"), "not text in UTF-8"),
        ("wide.csv", "a,y\n1,1\n".encode("utf-16"), "not text in UTF-8"),
        ("book.csv", b"PK\x03\x04rest", "Excel workbook"),
        ("table.csv.gz", b"a,y\n1,2\n", "not compressed as its name says"),
        ("table.csv", gzip.compress(b"a,y\n1,2\n", mtime=0), "compressed with gzip"),
        ("array.npy", b"a,y\n1,2\n", "not an array"),
    ],
)
def test_files_that_are_something_else_are_a_sentence(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


def test_headers_with_quotes_spaces_and_row_numbers(tmp_path):
    quoted = read_table(written(tmp_path, '"Fläche, m²";"Ort";"Preis, CHF"\n0.25;u;1\n0.5;v;2\n'))
    assert quoted.column_names == ["Fläche, m²", "Ort", "Preis, CHF"]
    spaced = read_table(written(tmp_path, "a, c, y\n1,2,3\n"), text=["c"])
    assert spaced.column_names == ["a", "c", "y"]
    assert spaced["c"].to_pylist() == ["2"]
    encoding = make_encoding(read_table(written(tmp_path, ",a,y\n0,1.5,2\n1,2.5,3\n")), "y")
    assert encoding.inputs == ("a",)
    assert "row numbers" in encoding.notes[0]
