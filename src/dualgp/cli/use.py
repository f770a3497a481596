"""The commands that use a model: predict, evaluate, sample, info and report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from dualgp.cli.group import (
    FilePath,
    check_output,
    load_model,
    main,
    model_argument,
    output_option,
    plain_errors,
    show_scores,
    table_argument,
)

TEXT, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@main.command()
@model_argument
@table_argument
@output_option("Where to write the predictions (.csv, .tsv or .parquet).")
@plain_errors
def predict(model: Path, table: Path, output: Path) -> None:
    """Predict for every row of a TABLE: mean, std, and the 5 % and 95 % points, q05 and q95.

    They describe a new observation, noise included: 90 % should lie between q05 and q95. Rows keep their order.

    \b
        dualgp predict houses.dgp new.csv -o predictions.csv
    """
    check_output(output, table, model)
    _check_ending(output)
    columns = load_model(model).predict(table)
    _write(columns, output)
    click.echo(f"Wrote {output}: {len(columns['mean']):,} rows.")


@main.command()
@model_argument
@table_argument
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@plain_errors
def evaluate(model: Path, table: Path, as_json: bool) -> None:
    """How good are predictions for a TABLE that has the target too, and was not fitted to?

    RMSE, negative log likelihood (NLL), coverage of the 90 % band and CRPS, next to ridge regression and the mean of
    the fitted data. Lower is better, except for coverage: that should be 90 %.

    \b
        dualgp evaluate houses.dgp held_out.csv
    """
    found = load_model(model).evaluate(table)
    click.echo(json.dumps(found, indent=2)) if as_json else show_scores(found)


@main.command()
@model_argument
@table_argument
@click.option("-n", "--number", type=click.IntRange(1), default=8, show_default=True, help="Of functions.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which of the model's functions.")
@output_option("Where to write them (.csv, .tsv or .parquet).")
@plain_errors
def sample(model: Path, table: Path, number: int, seed: int, output: Path) -> None:
    """Posterior functions at the rows of a TABLE: one column for each function, without noise.

    Each is one way the truth could be; the same function in every row, so that differences between rows make sense.

    \b
        dualgp sample houses.dgp grid.csv -n 20 -o functions.csv
    """
    check_output(output, table, model)
    _check_ending(output)
    columns = load_model(model).sample(table, number, seed)
    _write(columns, output)
    click.echo(f"Wrote {output}: {number} functions at {len(columns['f1']):,} rows.")


@main.command()
@model_argument
@plain_errors
def info(model: Path) -> None:
    """What is in a model: its columns, what was learned, and how good the solution is.

    \b
        dualgp info houses.dgp
    """
    loaded = load_model(model)
    click.echo(f"Predicts {loaded.encoding.target!r} from {len(loaded.encoding.inputs)} inputs:")
    scales = getattr(loaded.regressor, "lengthscale_", [None] * len(loaded.encoding.inputs))
    for name, scale in zip(loaded.encoding.inputs, scales, strict=True):
        click.echo(f"  {name}" + (f"  (lengthscale {scale:.4g})" if scale is not None else ""))
    for note in loaded.encoding.notes:
        click.echo(note)
    click.echo(loaded.regressor.report())


@main.command()
@model_argument
@click.option(
    "--data",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    help="Held-out rows with the target; otherwise each fitted row is predicted from all others.",
)
@output_option("Where to write the page.")
@plain_errors
def report(model: Path, data: Path | None, output: Path) -> None:
    """One self-contained HTML page about a model: plots, figures and what they mean.

    \b
        dualgp report houses.dgp -o houses.html
        dualgp report houses.dgp --data held_out.csv -o houses.html
    """
    from dualgp.report import write_report

    check_output(output, model, data)
    write_report(load_model(model), output, data)
    click.echo(f"Wrote {output} ({output.stat().st_size / 1e3:.0f} kB).")


def _check_ending(path: Path) -> None:
    """Before the work: a name says what is in the file."""
    kind = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    if kind not in TEXT and path.suffix not in PARQUET:
        raise ValueError(
            f"{path.name} has an ending that is not known. Choose {', '.join(TEXT)} (compressed with .gz, "
            f"say) or {PARQUET[0]}."
        )


def _write(columns: dict, path: Path) -> None:
    import pyarrow
    from pyarrow import csv, parquet

    from dualgp._files import replacing

    table, delimiter = pyarrow.table(columns), "\t" if ".tsv" in path.suffixes else ","
    with replacing(path) as whole, os.fdopen(os.dup(whole.fileno()), "wb") as own:  # pyarrow closes what it writes to
        if path.suffix in PARQUET:
            return parquet.write_table(table, own)
        with pyarrow.output_stream(own, compression=COMPRESSED.get(path.suffix)) as file:
            file.write((delimiter.join(columns) + "\n").encode())  # pyarrow would put quotes around the names
            csv.write_csv(table, file, csv.WriteOptions(delimiter=delimiter, include_header=False))
