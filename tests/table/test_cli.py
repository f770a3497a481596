"""The command line, as someone types it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from click.testing import CliRunner

import dualgp as dg
from dualgp.learning.checkpoint import LearningFile
from dualgp.table.cli import main
from dualgp.table.cli.group import exit_code


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of houses, its last rows apart, and a model."""
    path, rng, n = tmp_path_factory.mktemp("cli"), np.random.default_rng(0), 260
    table = pandas.DataFrame(
        {"area": rng.gamma(4, 30, n), "rooms": rng.integers(1, 8, n), "city": rng.choice(["Basel", "Bern", "Zug"], n)}
    )
    table["price"] = 3e3 * table.area + 2e4 * table.rooms + 2e5 * (table.city == "Zug") + 2e4 * rng.normal(size=n)
    table[:200].to_csv(path / "houses.csv", index=False)
    table[200:].to_csv(path / "held_out.csv", index=False)
    table[200:].drop(columns="price").to_parquet(path / "new.parquet")
    run("fit", path / "houses.csv", "--target", "price", "-o", path / "houses.dgp", "--quiet")
    return path


def test_help_answers_at_once_and_without_jax():
    code = "import sys; from dualgp.table.cli import main; assert not {'jax', 'numpy', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "dualgp.table.cli", "--help"], capture_output=True, text=True, check=True
        )
        seconds.append(time.perf_counter() - began)
    assert "dualgp fit data.csv --target price" in done.stdout
    assert min(seconds) < 0.5


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "sample", "info", "report"])
def test_every_command_has_help_with_an_example(command):
    assert f"dualgp {command} houses.dgp" in run(command, "--help") or "dualgp fit houses.csv" in run(command, "--help")


def test_predictions_have_a_mean_a_spread_and_a_band(folder):
    run("predict", folder / "houses.dgp", folder / "new.parquet", "-o", folder / "out.csv")
    found = pandas.read_csv(folder / "out.csv")
    truth = pandas.read_csv(folder / "held_out.csv").price
    assert list(found) == ["mean", "median", "std", "q05", "q95"]
    np.testing.assert_allclose((found.q95 - found.q05) / (2 * found["std"]), 1.6449, rtol=0.05)
    assert np.mean((truth > found.q05) & (truth < found.q95)) > 0.75
    assert dg.metrics.r2(truth, found["mean"]) > 0.95


def test_the_command_line_and_python_agree_to_the_last_bit(folder):
    for name in ("cli.csv", "cli.tsv", "cli.parquet"):
        run("predict", folder / "houses.dgp", folder / "new.parquet", "-o", folder / name)
    model = dg.load(folder / "houses.dgp")
    expected = model.predict(folder / "new.parquet")
    for read, name in ((pandas.read_parquet, "cli.parquet"), (pandas.read_csv, "cli.csv")):
        for column, values in read(folder / name).items():
            np.testing.assert_array_equal(values, expected[column])
    table, new = pandas.read_csv(folder / "houses.csv"), pandas.read_parquet(folder / "new.parquet")
    again = dg.GPRegressor(random_state=0).fit(table.drop(columns="price"), table.price)
    dg.save(again, folder / "python.dgp")
    for fitted in (again, dg.load(folder / "python.dgp")):
        mean, std = fitted.predict(new, return_std=True)
        np.testing.assert_array_equal(mean, expected["mean"])
        np.testing.assert_array_equal(std, expected["std"])
        np.testing.assert_array_equal(fitted.predict(new, quantiles=[0.05])[:, 0], expected["q05"])


def test_evaluation_puts_simple_predictors_beside(folder):
    found = json.loads(run("evaluate", folder / "houses.dgp", folder / "held_out.csv", "--json"))
    assert list(found) == ["dualgp", "ridge regression", "mean of the data"]
    assert found["dualgp"]["rmse"] < found["mean of the data"]["rmse"] / 3
    assert 0.75 < found["dualgp"]["coverage90"] <= 1
    text = run("evaluate", folder / "houses.dgp", folder / "held_out.csv")
    assert "ridge regression" in text and "90 % band" in text


def test_functions_are_written_one_in_a_column(folder):
    run("sample", folder / "houses.dgp", folder / "new.parquet", "-n", 3, "-o", folder / "functions.tsv")
    found = pandas.read_csv(folder / "functions.tsv", sep="\t")
    assert list(found) == ["f1", "f2", "f3"] and len(found) == 60
    text = run("sample", folder / "houses.dgp", folder / "new.parquet", "-n", 99, "-o", folder / "x.csv", code=2)
    assert "has 16 posterior functions" in text


def test_info_says_what_is_in_a_model(folder):
    text = run("info", folder / "houses.dgp")
    assert "Predicts 'price' from 3 inputs" in text
    assert "city  (3 coordinates, lengthscale" in text and "all 200 points" in text


def test_the_report_is_one_page_that_needs_nothing_else(folder):
    run("report", folder / "houses.dgp", "-o", folder / "report.html")
    run("report", folder / "houses.dgp", "--data", folder / "held_out.csv", "-o", folder / "held_out.html")
    for name, sentence in (("report", "predicted from all the others"), ("held_out", "60 held-out rows")):
        page = (folder / f"{name}.html").read_text()
        assert sentence in page and page.count("data:image/png;base64") >= 4
        assert "http" not in page and "<script" not in page
        assert 'name="viewport"' in page


def test_rows_held_out_are_evaluated(folder):
    text = run("fit", folder / "houses.csv", "--target", "price", "-o", folder / "b.dgp", "--hold-out", 0.2, "--quiet")
    assert "all 160 points" in text and "On 40 rows held out" in text
    good, sure, following = text.strip().splitlines()[-3:]
    assert good.startswith("How good: a typical error of") and "(40 held-out rows)" in good
    assert sure.startswith("How sure: give or take") and following.startswith("Next: ")
    assert "passes over the kernel matrix" not in text and "lengthscale" not in text


def test_internals_are_shown_when_they_are_asked_for(folder):
    text = run("fit", folder / "houses.csv", "--target", "price", "-o", folder / "b.dgp", "--verbose")
    assert "passes over the kernel matrix" in text and "lengthscale" in text


def test_predictions_go_from_the_standard_input_to_the_standard_output(folder):
    new = (folder / "held_out.csv").read_bytes()
    arguments = ["predict", str(folder / "houses.dgp"), "-", "--quantiles", "0.1,0.5,0.9", "--keep", "city"]
    result = CliRunner().invoke(main, [*arguments, "--keep", "rooms"], input=new)
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(io.StringIO(result.stdout))
    assert list(found) == ["city", "rooms", "mean", "median", "std", "q10", "q50", "q90"]
    assert found.city.tolist() == pandas.read_csv(folder / "held_out.csv").city.tolist()
    np.testing.assert_allclose(found.q50, found["median"], rtol=1e-12)
    assert np.all((found.q10 < found.q50) & (found.q50 < found.q90))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quantiles", "0.1,1.5"), "numbers between 0 and 1"),
        (("--quantiles", "low"), "numbers between 0 and 1"),
        (("--quantiles", "0.5,0.5"), "Quantiles must differ"),
        (("--keep", "street"), "no column 'street'"),
    ],
)
def test_wrong_options_of_predictions_are_a_sentence(options, message, folder):
    assert message in run("predict", folder / "houses.dgp", folder / "held_out.csv", *options, code=2)


def test_compiled_programs_are_kept_unless_that_is_turned_off(tmp_path):
    code = "import os; from dualgp.table.cli.cache import keep_programs; keep_programs();"
    code += "print(os.environ.get('JAX_COMPILATION_CACHE_DIR'))"

    def kept(**environment):
        command = [sys.executable, "-c", code]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "DUALGP_CACHE"))}
        done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert kept(XDG_CACHE_HOME=str(tmp_path)).startswith(str(tmp_path / "dualgp"))
    assert kept(DUALGP_CACHE="off") == "None"
    assert kept(JAX_COMPILATION_CACHE_DIR="mine") == "mine"


SMILES = ("--smiles", "street")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{}/houses.csv", "--target", "cost", "-o", "{}/x.dgp"], "no column 'cost'"),
        (["fit", "{}/houses.csv", "--target", "price", "-o", "{}/nowhere/x.dgp"], "no folder"),
        (["fit", "{}/nothing.csv", "--target", "price", "-o", "{}/x.dgp"], "does not exist"),
        (["fit", "{}/houses.dgp", "--target", "price", "-o", "{}/x.dgp"], "Error"),
        (["predict", "{}/houses.csv", "{}/houses.csv", "-o", "{}/x.csv"], "is not a dualgp file"),
        (["evaluate", "{}/houses.dgp", "{}/new.parquet"], "no column 'price'"),
        (["fit", "{}/houses.csv", "--target", "price", "-o", "{}/x.dgp", "--max-seconds", "-1"], "max-seconds"),
        (["fit", "{}/houses.csv", "--target", "price", "-o", "{}/x.dgp", "--rank", "0"], "for --distributed"),
        (["fit", "{}/houses.csv", "--target", "price", "-o", "{}/x.dgp", *SMILES, "--distributed"], "one process"),
        (["fit", "{}/houses.csv", "--target", "price", "-o", "{}/x.dgp", *SMILES, "--drop", "id"], "not for --smiles"),
        (["fit", "{}/houses.csv", "--target", "price", "-o", "{}/x.dgp", "--bits"], "are for --smiles"),
        (["predict", "{}/houses.dgp", "{}/new.parquet", "-o", "{}/x.xlsx"], "ending that is not known"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(arguments, message, folder):
    text = run(*(argument.format(folder) for argument in arguments), code=2)
    assert message in text and "Traceback" not in text


def test_a_killed_fit_goes_on_where_it_was(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(6000, 2))
    y = np.sin(9 * x[:, 0]) + np.cos(7 * x[:, 1]) + 0.1 * rng.normal(size=6000)
    pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_csv(tmp_path / "data.csv", index=False)
    fit = ["fit", tmp_path / "data.csv", "--target", "y", "-o", tmp_path / "m.dgp", "--samples", 4, "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "dualgp.table.cli", *map(str, fit)], stdout=subprocess.DEVNULL)
    partial = tmp_path / "m.dgp.partial"
    deadline = time.time() + 120
    while not partial.exists() and time.time() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert partial.exists() and not (tmp_path / "m.dgp").exists()
    assert "unfinished fit" in run(*fit, code=2)
    once, known = LearningFile.once, []
    monkeypatch.setattr(LearningFile, "once", lambda file, *a: (known.append(file.is_behind), once(file, *a))[1])
    assert "all rows" in run(*fit, "--resume", "--verbose")
    assert any(known)  # numbers of the fit that was killed are used, not found again
    assert [path.name for path in tmp_path.glob("m.dgp*")] == ["m.dgp"]
    prediction = dg.load(tmp_path / "m.dgp").predict({"a": [0.5], "b": [0.5]})
    assert abs(prediction["mean"][0] - np.sin(4.5) - np.cos(3.5)) < 0.1


def test_a_fit_that_the_time_limit_ended_has_a_report(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(5000, 2))
    pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(9 * x[:, 0])}).to_parquet(tmp_path / "t.parquet")
    fit = ("fit", tmp_path / "t.parquet", "--target", "y", "-o", tmp_path / "m.dgp", "--samples", 4, "--quiet")
    assert "The fit is not finished" in run(*fit, "--max-seconds", 0.01)
    run("report", tmp_path / "m.dgp", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64" in page and not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_missing_values_are_handled_as_asked_from_fit_to_report(tmp_path):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)})
    table["y"] = table.a + 0.1 * rng.normal(size=60)
    table.loc[[7, 30], "a"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", tmp_path / "t.csv", "--target", "y", "--quiet", "-o"]
    assert "all 58 points" in run(*fit, tmp_path / "drop.dgp", "--missing", "drop")
    assert "all 60 points in 3" in run(*fit, tmp_path / "fill.dgp")
    assert "the first in row 8" in run(*fit, tmp_path / "error.dgp", "--missing", "error", code=2)
    for name in ("drop", "fill"):
        run("evaluate", tmp_path / f"{name}.dgp", tmp_path / "t.csv")
        run("report", tmp_path / f"{name}.dgp", "--data", tmp_path / "t.csv", "-o", tmp_path / "r.html")
    run("predict", tmp_path / "fill.dgp", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    assert "leave the rows out" in run(
        "predict", tmp_path / "drop.dgp", tmp_path / "t.csv", "-o", tmp_path / "p.csv", code=2
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_rare_value_may_fall_on_either_side_of_the_split(seed, tmp_path):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"a": rng.normal(size=40), "c": ["u"] * 39 + ["v"]})
    table["y"] = table.a
    table.loc[7, "a"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    text = run("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m.dgp", "--hold-out", 0.5, "--seed", seed)
    assert "On 20 rows held out" in text and "ridge" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.dgp", "t.csv"]


def test_a_model_of_several_kernels_has_a_report(tmp_path):
    from dualgp.table.model import fit_table
    from dualgp.table.report import make_report

    frame = pandas.DataFrame({"a": np.linspace(0, 1, 50), "y": np.linspace(0, 1, 50) ** 2})
    model = fit_table(frame, "y", kernel=dg.RBF() + dg.Matern32(), random_state=0)
    page = make_report(model, frame)
    assert "Along each column" in page and "What matters" in page


def test_predictions_are_compressed_as_their_name_says(folder):
    run("predict", folder / "houses.dgp", folder / "new.parquet", "-o", folder / "out.csv.gz")
    assert len(pandas.read_csv(folder / "out.csv.gz")) == 60


def test_unknown_values_are_noted_whatever_the_command(folder):
    table = pandas.read_csv(folder / "held_out.csv")
    table.loc[0, "city"] = "Ulm"
    table.to_csv(folder / "unknown.csv", index=False)
    assert "Note: Column 'city' has values unknown" in run("evaluate", folder / "houses.dgp", folder / "unknown.csv")


@pytest.mark.parametrize(
    ("result", "code"), [("diverged", 3), ("interrupted", 130), ("budget reached", 0), ("stalled", 0)]
)
def test_an_unfinished_fit_says_why_by_its_exit_code(result, code):
    solution = SimpleNamespace(result=dg.Result(result))
    regressor = SimpleNamespace(finished_=False, interrupted_=False, posterior_=SimpleNamespace(solution=solution))
    assert exit_code(regressor) == code
    regressor.interrupted_ = True
    assert exit_code(regressor) == (3 if result == "diverged" else 130)
    regressor.finished_ = True
    assert exit_code(regressor) == 0


def test_a_name_that_no_file_can_have_gets_a_sentence(folder):
    for name in ("a\0.csv", "x" * 300):
        said = run("predict", f"{folder}/houses.dgp", f"{folder}/held_out.csv", "-o", f"{folder}/{name}", code=2)
        assert "Error: " in said and "Traceback" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "{0}/held_out.csv", "--target", "price", "-o", "{0}/held_out.csv"),
        ("predict", "{0}/houses.dgp", "{0}/held_out.csv", "-o", "{0}/held_out.csv"),
        ("sample", "{0}/houses.dgp", "{0}/held_out.csv", "-o", "{0}/../{1}/houses.dgp"),
        ("report", "{0}/houses.dgp", "-o", "{0}/houses.dgp"),
    ],
)
def test_no_command_writes_over_what_it_reads(arguments, folder):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    said = run(*(text.format(folder, folder.name) for text in arguments), code=2)
    assert "is what is read from" in said
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_an_output_that_cannot_be_written_is_said_before_the_work(folder):
    for output in ("/proc/x.csv", folder / "nowhere" / "x.csv"):
        said = run("predict", folder / "houses.dgp", folder / "held_out.csv", "-o", output, code=2)
        assert "cannot be written" in said or "There is no folder" in said


def test_the_package_itself_can_be_run():
    found = subprocess.run([sys.executable, "-m", "dualgp", "--version"], capture_output=True, text=True, check=True)
    assert "dualgp" in found.stdout
