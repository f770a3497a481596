"""The commands that use a model: predict, evaluate, sample, info and report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from dualgp.table.cli.group import (
    FilePath,
    check_output,
    load_model,
    main,
    model_argument,
    output_option,
    plain_errors,
    show_scores,
    spooled,
    table_argument,
    table_or_stdin,
)

TEXT, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@main.command()
@model_argument
@table_or_stdin
@click.option(
    "-o",
    "--output",
    type=FilePath(dir_okay=False, path_type=Path, allow_dash=True),
    default="-",
    help="Where to write the predictions (.csv, .tsv or .parquet); otherwise they are printed.",
)
@click.option(
    "--quantiles", default="0.05,0.95", show_default=True, help="Points of the distribution, such as 0.1,0.5,0.9."
)
@click.option(
    "--keep", multiple=True, metavar="COLUMN", help="Copy this column of the table. May be given several times."
)
@plain_errors
def predict(model: Path, table: Path, output: Path, quantiles: str, keep: tuple[str, ...]) -> None:
    """Predict for every row of a TABLE, or of CSV from the standard input (-): mean, median, std and quantiles.

    They describe a new observation, noise included: 90 % should lie between q05 and q95. Rows keep their order.

    \b
        dualgp predict houses.dgp new.csv -o predictions.csv --keep id
        cat new.csv | dualgp predict houses.dgp - --quantiles 0.1,0.5,0.9
    """
    from dualgp.columns.tables import column_of

    is_printed, levels = str(output) == "-", _as_levels(quantiles)
    if not is_printed:
        check_output(output, table, model)
        _check_ending(output)
    loaded = load_model(model)
    rows = loaded.table(spooled(table))
    kept = {name: column_of(rows, name) for name in keep}
    columns = loaded.predict(rows, levels)
    if clash := [name for name in kept if name in columns]:
        raise ValueError(f"{clash[0]!r} is the name of a prediction. Rename that column of the table to keep it.")
    if is_printed:
        _print(kept | columns)
    else:
        _write(kept | columns, output)
        click.echo(f"Wrote {output}: {rows.num_rows:,} rows.")


def _as_levels(quantiles: str) -> list[float]:
    try:
        levels = [float(level) for level in quantiles.split(",")]
    except ValueError:
        levels = [0.0]
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"--quantiles takes numbers between 0 and 1, such as 0.1,0.5,0.9; got {quantiles!r}.")
    return levels


@main.command()
@model_argument
@table_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
@click.option("-n", "--number", type=click.IntRange(1), default=8, show_default=True, help="The number of functions.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed that chooses the functions.")
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
    click.echo(f"Wrote {output}: {number} functions at {len(next(iter(columns.values()))):,} rows.")


@main.command()
@model_argument
@plain_errors
def info(model: Path) -> None:
    """What is in a model: its columns, what was learned, and how good the solution is.

    \b
        dualgp info houses.dgp
    """
    import numpy as np

    from dualgp.columns.encoding import names_of

    loaded = load_model(model)
    groups = loaded.encoding.groups
    click.echo(f"Predicts {', '.join(map(repr, names_of(loaded.encoding.target)))} from {len(groups)} inputs:")
    scales = np.asarray(getattr(loaded.regressor.posterior_.model.kernel, "lengthscale", np.nan))
    for i, (name, inputs) in enumerate(groups.items()):
        said = f"{len(inputs)} coordinates" if len(inputs) > 1 else ""
        scale = f"lengthscale {scales[i]:.4g}" if scales.shape == (len(groups),) else ""
        detail = ", ".join(filter(None, [said, scale]))
        click.echo(f"  {name}" + (f"  ({detail})" if detail else ""))
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
    from dualgp.table.report import write_report

    check_output(output, model, data)
    write_report(load_model(model), output, data)
    click.echo(f"Wrote {output} ({output.stat().st_size / 1e3:.0f} kB).")


def _check_ending(path: Path) -> None:
    """Check before the work that the ending of the name is known."""
    kind = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    if kind not in TEXT and path.suffix not in PARQUET:
        raise ValueError(
            f"{path.name} has an ending that is not known. Choose {', '.join(TEXT)} (compressed with .gz, "
            f"say) or {PARQUET[0]}."
        )


def _print(columns: dict) -> None:
    import pyarrow

    _write_text(columns, pyarrow.PythonFile(sys.stdout.buffer, mode="w"), ",")


def _write(columns: dict, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    from dualgp._files import replacing

    with replacing(path) as whole, os.fdopen(os.dup(whole.fileno()), "wb") as own:  # pyarrow closes what it writes to
        if path.suffix in PARQUET:
            return parquet.write_table(pyarrow.table(columns), own)
        with pyarrow.output_stream(own, compression=COMPRESSED.get(path.suffix)) as file:
            _write_text(columns, file, "\t" if ".tsv" in path.suffixes else ",")


def _write_text(columns: dict, file: Any, delimiter: str) -> None:
    import pyarrow
    from pyarrow import csv

    file.write((delimiter.join(columns) + "\n").encode())  # pyarrow would put quotes around the names
    csv.write_csv(pyarrow.table(columns), file, csv.WriteOptions(delimiter=delimiter, include_header=False))
