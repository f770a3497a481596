import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import dualgp as dg
from datasets import dockstring
from dualgp.sklearn.fingerprints import CHUNK, column_of_strings, fingerprints
from dualgp.sklearn.scaffolds import random_split, scaffold_split
from dualgp.table.cli import main

pytest.importorskip("rdkit", reason="fingerprints are RDKit's")
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

RINGS = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CCNC1")
SMILES = [f"{'C' * (i % 9 + 1)}{'O' * (i % 2)}{ring}" for i in range(30) for ring in RINGS]


def scores(smiles: list[str]) -> np.ndarray:
    """Something that fingerprints know: carbon in chains, and nitrogen."""
    return np.array([0.3 * text.count("C") - ("n" in text) for text in smiles])


@pytest.mark.parametrize("counts", [True, False])
def test_fingerprints_are_those_of_rdkit(counts):
    x, valid = fingerprints(SMILES, radius=2, size=256, counts=counts)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=256)
    make = generator.GetCountFingerprint if counts else generator.GetFingerprint
    assert valid.all()
    assert x.dtype == np.uint8
    np.testing.assert_array_equal(x, [list(make(Chem.MolFromSmiles(text))) for text in SMILES])


def test_many_molecules_in_processes_are_the_same_as_in_this_one():
    many = SMILES * (CHUNK // len(SMILES) + 1)
    np.testing.assert_array_equal(
        fingerprints(many, n_jobs=2)[0], np.tile(fingerprints(SMILES)[0], (len(many) // len(SMILES), 1))
    )


def test_smiles_that_cannot_be_read_are_named_dropped_or_nan():
    smiles = ["CCO", "nonsense", "CCN", "C1CC", ""]
    with pytest.raises(ValueError, match=r"3 SMILES cannot be read: row 1 \('nonsense'\), 3 \('C1CC'\), 4"):
        fingerprints(smiles)
    dropped, valid = fingerprints(smiles, invalid="drop")
    assert dropped.shape == (2, 1024)
    assert valid.tolist() == [True, False, True, False, False]
    with_nan, _ = fingerprints(smiles, invalid="nan")
    np.testing.assert_array_equal(np.isnan(with_nan).all(axis=1), ~valid)
    np.testing.assert_array_equal(with_nan[valid], dropped)


def test_a_pipeline_learns_from_a_column_of_strings():
    pandas = pytest.importorskip("pandas")
    y = scores(SMILES)
    pipeline = make_pipeline(dg.MorganFingerprint(), dg.GPRegressor(dg.Tanimoto(), learn=False, noise=0.01))
    held_out = np.arange(len(y)) % 3 == 0
    strings = np.array(SMILES)
    mean = pipeline.fit(strings[~held_out], y[~held_out]).predict(strings[held_out])
    assert dg.metrics.r2(y[held_out], mean) > 0.9
    frame = pandas.DataFrame({"smiles": SMILES})
    np.testing.assert_array_equal(pipeline.predict(frame), pipeline.predict(SMILES))
    np.testing.assert_array_equal(pipeline.predict(frame["smiles"]), pipeline.predict(SMILES))


def test_the_transformer_is_one_of_scikit_learns():
    transformer = dg.MorganFingerprint(radius=2, size=64)
    assert clone(transformer).get_params() == transformer.get_params()
    assert transformer.transform(SMILES).shape == (len(SMILES), 64)
    assert len(transformer.fit(SMILES).get_feature_names_out()) == 64
    with pytest.raises(ValueError, match="in a transformer"):
        dg.MorganFingerprint(invalid="drop").fit(SMILES)
    for bad, error in (([["C", "N"]], ValueError), (["C", None], TypeError), ([1.0], TypeError)):
        with pytest.raises(error, match="SMILES"):
            column_of_strings(bad)


def test_a_table_of_molecules_from_the_command_line(tmp_path):
    rows = [f"{text},{value:.3f},{i}" for i, (text, value) in enumerate(zip(SMILES, scores(SMILES), strict=True))]
    table, model, out = tmp_path / "molecules.csv", str(tmp_path / "m.dgp"), tmp_path / "p.csv"
    table.write_text("smiles,score,id\n" + "\n".join([*rows, "nonsense,1.0,7"]))
    arguments = ["fit", str(table), "--smiles", "smiles", "--target", "score", "-o", model, "--quiet", "--samples", "4"]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "row 121 ('nonsense')" in refused.output
    fitted = CliRunner().invoke(main, [*arguments, "--invalid", "drop", "--radius", "2", "--fingerprint-size", "128"])
    assert fitted.exit_code == 0, fitted.output
    assert "'id' were left out" in fitted.output
    assert "1 of 121 rows were left out" in fitted.output
    assert CliRunner().invoke(main, ["predict", model, str(table), "-o", str(out)]).exit_code == 0
    mean = np.genfromtxt(out, delimiter=",", names=True)["mean"]
    assert np.isnan(mean[-1])
    assert dg.metrics.r2(scores(SMILES), mean[:-1]) > 0.9
    loaded = dg.load(model)
    assert (loaded.encoding.radius, loaded.encoding.size) == (2, 128)
    for command in (["info", model], ["evaluate", model, str(table)]):
        assert CliRunner().invoke(main, command).exit_code == 0
    page = tmp_path / "page.html"
    assert CliRunner().invoke(main, ["report", model, "-o", str(page)]).exit_code == 0
    assert "How good are the predictions?" in page.read_text()


def test_no_scaffold_is_on_both_sides_of_a_scaffold_split():
    smiles = [*SMILES, "CCO", "CCN"]
    train, test = scaffold_split(smiles, test_share=0.3)
    rings = lambda rows: {next((ring for ring in RINGS if ring in smiles[i]), "") for i in rows}
    assert not rings(train) & rings(test)
    assert sorted([*train, *test]) == list(range(len(smiles)))
    assert 0.2 < len(test) / len(smiles) < 0.6


def test_a_random_split_is_a_split():
    train, test = random_split(101, test_share=0.2, seed=3)
    assert len(test) == 20
    assert sorted([*train, *test]) == list(range(101))


def test_the_benchmark_is_read_by_its_own_split_and_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALGP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"dockstring-dataset.tsv is not in .* Download"):
        dockstring("F2")
    with pytest.raises(ValueError, match="no target 'F3'"):
        dockstring("F3")
    (tmp_path / "dockstring-dataset.tsv").write_text(
        "inchikey\tsmiles\tESR2\tF2\nA\tCCO\t-7.5\t-6.5\nB\tCCN\t\t12.0\nC\tCCC\t-8.0\t\nD\tCC\t-9.0\t-9.0\n"
    )
    (tmp_path / "cluster_split.tsv").write_text("inchikey\tsplit\nD\ttest\nC\ttrain\nB\ttrain\nA\ttrain\n")
    train, test = dockstring("F2")
    assert train.smiles == ["CCO", "CCN"]
    assert train.y.tolist() == [-6.5, 5.0]
    assert test.smiles == ["CC"]


def test_one_string_is_not_a_list_of_molecules():
    with pytest.raises(TypeError, match="list of SMILES"):
        fingerprints("CCO")


def test_rows_that_cannot_be_read_are_named_as_they_are_in_the_file():
    pytest.importorskip("pyarrow")
    from dualgp.columns.tables import as_table
    from dualgp.table.smiles import make_smiles_encoding

    table = as_table({"s": ["CC", "CCC", "CCN", "CCO", "xx"], "y": [None, None, 1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="row 5 \\('xx'\\)"):
        make_smiles_encoding(table, "s", "y")
