"""Odd input at every entry point: a finite answer or one sentence that names it. Never NaN, a traceback or a guess."""

import datetime
import re
import warnings

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import dualgp as dg
from cases import data
from dualgp import metrics

KEY = jax.random.key(0)
X, Y = data(24)
KERNEL = dg.Matern32(1.0)


def regressor(**settings):
    return dg.GPRegressor(
        **{"kernel": KERNEL, "noise": 0.01, "learn": False, "n_samples": 3, "random_state": 0} | settings
    )


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def posteriors():
    model = dg.GaussianProcess(KERNEL, 0.01)
    solvers = {"exact": dg.Cholesky(), "single": dg.BlockDescent()}
    return {
        name: model.condition(
            X if name == "exact" else X.astype(np.float32), Y, solver=solver, num_samples=3, num_features=64, key=KEY
        )
        for name, solver in solvers.items()
    }


def sampler():
    return dg.ThompsonSampler([(-1, 1)] * 3, key=KEY)


def far(value):
    return np.array([[0.0, 0.1, 0.2], [value, 0.0, 0.0]])


DAYS = np.arange("2020-01-01", 3 * 24, dtype="datetime64[D]")[: 3 * 24].reshape(24, 3)
MASKED = np.ma.masked_array(X, mask=X > 1.5, fill_value=-9999.0)
ENTRIES = {
    "fit": lambda x, y: regressor().fit(x, y),
    "update": lambda x, y: regressor().fit(X, Y).update(x, y),
    "condition": lambda x, y: dg.GaussianProcess(KERNEL, 0.01).condition(x, y, num_samples=0),
    "learn": lambda x, y: dg.learn(dg.GaussianProcess(KERNEL, 0.01), x, y, max_seconds=1.0),
    "extend": lambda x, y: dg.GaussianProcess(KERNEL, 0.01).condition(X, Y, num_samples=0).update(x, y),
    "tell": lambda x, y: sampler().tell(x, y),
}
POINTS = {
    "predict": lambda fitted, x: fitted.predict(x),
    "std": lambda fitted, x: fitted.predict(x, return_std=True),
    "cov": lambda fitted, x: fitted.predict(x, return_cov=True),
    "sample_y": lambda fitted, x: fitted.sample_y(x),
    "functions": lambda fitted, x: fitted.sample_functions()(x),
    "mean": lambda fitted, x: fitted.posterior_.mean(x),
    "bound": lambda fitted, x: fitted.posterior_.error_bound(x),
    "covariance": lambda fitted, x: fitted.posterior_.covariance(x),
    "samples": lambda fitted, x: fitted.posterior_.samples(x),
}
ODD_POINTS = {
    "datetimes": (DAYS, "times"),
    "timedeltas": (DAYS - DAYS[0, 0], "times"),
    "NaT": (np.full((24, 3), np.datetime64("NaT")), "times"),
    "dates": ([[datetime.date(2020, 1, 1)] * 3] * 24, "times|real numbers"),
    "masked": (MASKED, "masked"),
    "1e300": (X * 1e300, "too large|squared distances overflow"),
    "1e160": (X * 1e160, "too large|squared distances overflow"),
}


@pytest.mark.parametrize("odd", ODD_POINTS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_odd_points_to_learn_from_get_a_sentence(entry, odd):
    x, sentence = ODD_POINTS[odd]
    with pytest.raises((ValueError, TypeError), match=sentence):
        ENTRIES[entry](x, Y)


@pytest.mark.parametrize("odd", ODD_POINTS)
@pytest.mark.parametrize("entry", POINTS)
def test_odd_points_to_predict_get_a_sentence(entry, odd, fitted):
    x, sentence = ODD_POINTS[odd]
    with pytest.raises((ValueError, TypeError), match=sentence):
        POINTS[entry](fitted, x)


def test_data_frames_with_times_get_a_sentence_from_models_of_numbers():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "b": pandas.date_range("2020-01-01", periods=24), "c": X[:, 2]})
    with pytest.raises((ValueError, TypeError), match="times"):
        ENTRIES["update"](frame, Y)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (Y * 1e300, "y has values as large as .*too large"),
        (np.ma.masked_array(Y, mask=Y > 0), "masked"),
        (DAYS[:, 0], "times"),
        (Y[None, None], r"shape|Found array with dim 3"),
    ],
    ids=["1e300", "masked", "datetimes", "three dimensions"],
)
@pytest.mark.parametrize("entry", ENTRIES)
def test_odd_targets_get_a_sentence(entry, y, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        ENTRIES[entry](X, y)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-160])
def test_targets_that_vary_too_little_get_a_sentence(scale):
    with pytest.raises(ValueError, match=r"y varies by .* too little"):
        regressor().fit(X, np.sign(Y) * scale)


@pytest.mark.parametrize("value", [1e300, -1e308, 1e155])
@pytest.mark.parametrize("kind", ["exact", "single"])
@pytest.mark.parametrize("what", ["predict", "mean", "covariance", "error_bound", "samples"])
def test_points_too_far_for_the_precision_are_named(what, kind, value, posteriors):
    ask = getattr(posteriors[kind], what)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"x\[1, 0\].*too large|x\[1\].*too far"):
            ask(far(value))


@pytest.mark.parametrize("value", [1e18, 1e25, 1e37, 1e39, 1e100])
@pytest.mark.parametrize("what", ["predict", "mean", "covariance", "error_bound", "samples"])
@pytest.mark.parametrize("kind", ["exact", "single"])
def test_far_points_give_finite_numbers_or_a_sentence(what, value, kind, posteriors):
    try:
        found = getattr(posteriors[kind], what)(far(value))
    except ValueError as error:
        assert "too far" in str(error) or "too large" in str(error)
    else:
        assert all(np.isfinite(part).all() for part in (found if isinstance(found, tuple) else (found,)))


def test_inputs_of_tiny_scale_learn_and_far_points_are_said_to_be_far():
    small = dg.GPRegressor(n_samples=2, random_state=0).fit(X * 1e-160, Y)
    assert np.isfinite(small.predict(X * 1e-160, return_std=True)).all()
    with pytest.raises(ValueError, match="too far"):
        small.predict(X * 1e10, return_std=True)


def test_half_precision_targets_are_as_good_in_update_as_in_fit():
    half = (50.0 + Y).astype(np.float16)
    first = regressor().fit(X[:12], half[:12].astype(float))
    one, other = (first.__class__(**first.get_params()).fit(X[:12], half[:12].astype(float)) for _ in range(2))
    np.testing.assert_array_equal(
        one.update(X[12:], half[12:]).predict(X), other.update(X[12:], half[12:].astype(float)).predict(X)
    )


@pytest.mark.parametrize("number", [10**8, 10**29])
@pytest.mark.parametrize(
    "ask",
    [
        lambda n: regressor(n_samples=n).fit(X, Y),
        lambda n: dg.GaussianProcess(KERNEL, 0.1).condition(X, Y, num_samples=n, key=KEY),
        lambda n: dg.GaussianProcess(KERNEL, 0.1).condition(X, Y, num_features=n, key=KEY),
        lambda n: dg.GaussianProcess(KERNEL, 0.1).sample_prior(3, n, key=KEY),
        lambda n: regressor().fit(X, Y).sample_y(X, n),
        lambda n: sampler().ask(n),
    ],
    ids=["fit", "condition", "features", "prior", "sample_y", "ask"],
)
def test_more_functions_than_memory_holds_are_refused_at_once(ask, number):
    with pytest.raises(ValueError, match="GB"):
        ask(number)


@pytest.mark.parametrize("devices", [[1], ["cpu"], 1.5, []])
def test_devices_that_are_none_get_a_sentence(devices):
    with pytest.raises((ValueError, TypeError), match="devices must be"):
        regressor(devices=devices).fit(X, Y)


def test_scores_that_overflow_get_a_sentence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for score in (metrics.rmse, metrics.r2):
            with pytest.raises(ValueError, match="too large"):
                score(Y * 1e154, -Y * 1e154)
        with pytest.raises(ValueError, match="not finite"):
            metrics.nll(Y, Y + 1.0, 1e-200)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    folder = tmp_path_factory.mktemp("table")
    rows = [f"{a:.3f},{b:.3f},{'green' if c > 0 else 'blue'},{y:.3f}" for (a, b, c), y in zip(X, Y, strict=True)]
    (folder / "t.csv").write_text("\n".join(["a,b,colour,y", *rows, ""]))
    done = run(
        ["fit", str(folder / "t.csv"), "--target", "y", "-o", str(folder / "m.dgp"), "--quiet", "--samples", "8"]
    )
    assert done.exit_code == 0, done.output
    return folder


def run(arguments):
    from dualgp.table.cli import main

    return CliRunner().invoke(main, arguments)


def use(command, table, text, output="o.csv"):
    (table / "new.csv").write_bytes(text)
    (table / "o.csv").unlink(missing_ok=True)
    more = ["-o", str(table / output)] if command != "evaluate" else []
    return run([command, str(table / "m.dgp"), str(table / "new.csv"), *more])


@pytest.mark.parametrize("command", ["predict", "sample", "evaluate"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a,b,y\n1,2,3\n", "has no column 'colour', which the model was fitted with"),
        (b"a,b,colour,y\n1,2,green,3\n1,1e308,green,3\n", "Column 'b' has .*1e\\+308 in row 2.* too large"),
        (b"a,b,colour,y\n1,2,green,3\n1,-inf,green,3\n", "Column 'b' has infinite values, the first in row 2"),
        (b'a,b,"colour\n' + b"x" * 200_000 + b"\n", "cannot be read"),
    ],
    ids=["text column missing", "1e308", "inf", "long quote"],
)
def test_a_table_that_cannot_be_used_gets_a_sentence(command, text, sentence, table):
    done = use(command, table, text)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done
    assert re.search(sentence, done.output), done.output
    assert not (table / "o.csv").exists()


def test_line_ends_of_old_macs_and_blanks_around_text_change_nothing(table):
    plain = b"a,b,colour,y\n0.1,0.2,green,1\n0.3,0.4,blue,2\n"
    expected = None
    for text in (plain, plain.replace(b"\n", b"\r"), plain.replace(b"\n", b"\r\n"), plain.replace(b",", b" , ")):
        done = use("predict", table, text)
        assert done.exit_code == 0 and "unknown" not in done.output, done.output
        written = (table / "o.csv").read_text()
        expected = expected or written
        assert written == expected


@pytest.mark.parametrize(
    "options",
    [["--hold-out", "nan"], ["--tol", "nan"], ["--max-seconds", "nan"], ["--samples", "100000000"], ["-o", "a\0.dgp"]],
    ids=lambda options: options[0],
)
def test_options_that_make_no_sense_get_a_sentence(options, table):
    done = run(["fit", str(table / "t.csv"), "--target", "y", "-o", str(table / "n.dgp"), "--quiet", *options])
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done
    assert "Error: " in done.output and "NaN to integer" not in done.output


@pytest.mark.parametrize("command", ["predict", "report"])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_full_disk_leaves_what_was_there(command, old, table, monkeypatch):
    from dualgp import _files

    output = table / ("p.csv" if command == "predict" else "r.html")
    output.unlink(missing_ok=True)
    if old is not None:
        output.write_bytes(old)
    (table / "new.csv").write_text("a,b,colour\n1,2,green\n")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(_files.os, "fsync", lambda file: (_ for _ in ()).throw(full))
    inputs = [str(table / "new.csv")] if command == "predict" else []
    done = run([command, str(table / "m.dgp"), *inputs, "-o", str(output)])
    assert done.exit_code == 2 and "could not be written (No space left on device)" in done.output, done.output
    assert (output.read_bytes() if output.exists() else None) == old
    assert not list(table.glob("*.writing"))


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".csv.bz2", ".csv.zst", ".parquet"])
def test_predictions_of_every_kind_come_back(ending, table):
    from dualgp.columns.tables import read_table

    done = use("predict", table, b"a,b,colour\n1,2,green\n0.5,0.4,blue\n", f"kind{ending}")
    assert done.exit_code == 0, done.output
    assert read_table(table / f"kind{ending}").column_names == ["mean", "median", "std", "q05", "q95"]


@pytest.mark.parametrize("command", ["fit", "predict", "report"])
def test_a_pipe_as_output_is_refused_before_any_work(command, table, monkeypatch):
    import os

    pipe = table / "pipe.csv"
    if not pipe.exists():
        os.mkfifo(pipe)
    inputs = {"fit": ["t.csv", "--target", "y"], "predict": ["m.dgp", "t.csv"], "report": ["m.dgp"]}[command]
    monkeypatch.chdir(table)
    done = run([command, *inputs, "-o", str(pipe)])
    assert done.exit_code == 2 and "is not an ordinary file" in done.output, done.output
