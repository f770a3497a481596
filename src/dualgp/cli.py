"""The command `dualgp`. Heavy imports wait inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dualgp import __version__

BAD_INPUT, INTERRUPTED, NOT_SOLVED = 2, 130, 3

model_argument = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
table_argument = click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))


def _output(help: str, required: bool = True) -> Callable:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", type=kind, required=required, help=help)


def _plain_errors(command: Callable) -> Callable:
    """Bad input is a sentence and exit code 2, not a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, TypeError, OSError, ImportError) as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(BAD_INPUT)
        except MemoryError as error:
            click.echo(f"Error: not enough memory ({error}). Fewer columns, or --samples 16, need less.", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(INTERRUPTED)

    return wrapped


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command has its own help with examples: dualgp fit --help",
)
@click.version_option(__version__, prog_name="dualgp")
def main() -> None:
    """Gaussian process regression on all of a table's rows: predictions with error bars.

    \b
        dualgp fit data.csv --target price -o model.dgp
        dualgp predict model.dgp new.csv -o predictions.csv
        dualgp report model.dgp -o report.html
    """


@main.command()
@table_argument
@click.option("--target", required=True, help="The column to predict.")
@_output("Where to write the model.")
@click.option("--smiles", metavar="COLUMN", help="Predict from the molecules in this column, as SMILES (needs RDKit).")
@click.option(
    "--radius", type=click.IntRange(0), default=1, show_default=True, help="Of Morgan fingerprints, in bonds."
)
@click.option(
    "--fingerprint-size", type=click.IntRange(1), default=1024, show_default=True, help="Columns of the fingerprints."
)
@click.option("--bits", is_flag=True, help="Which fragments there are, instead of how often.")
@click.option(
    "--invalid",
    type=click.Choice(["raise", "drop"]),
    default="raise",
    show_default=True,
    help="SMILES that cannot be read: refuse, or drop the rows (and predict nothing for such rows later).",
)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave this column out. May be given several times.")
@click.option(
    "--missing",
    type=click.Choice(["fill", "drop", "error"]),
    default="fill",
    show_default=True,
    help="Missing numbers: fill in the median and say where, drop the rows, or refuse. Missing text is a value.",
)
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 0.9, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Put a random share of the rows aside and evaluate on them, e.g. 0.1.",
)
@click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="Stop about then with what there is.")
@click.option("--samples", type=click.IntRange(2), default=64, show_default=True, help="Posterior functions.")
@click.option("--tol", type=click.FloatRange(0, 1), default=1e-2, show_default=True, help="Relative residual to reach.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all randomness.")
@click.option("--resume", is_flag=True, help="Go on from an unfinished fit of the same table.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@click.option("--distributed", is_flag=True, help="As one of many processes; see below.")
@click.option("--coordinator", metavar="HOST:PORT", help="Where the first process listens. Not needed under SLURM.")
@click.option("--rank", type=click.IntRange(0), help="The number of this process, from 0.")
@click.option("--size", type=click.IntRange(1), help="How many processes there are.")
@_plain_errors
def fit(
    table: Path,
    target: str,
    output: Path,
    smiles: str | None,
    radius: int,
    fingerprint_size: int,
    bits: bool,
    invalid: str,
    drop: tuple[str, ...],
    missing: str,
    hold_out: float,
    max_seconds: float | None,
    samples: int,
    tol: float,
    seed: int,
    resume: bool,
    quiet: bool,
    distributed: bool,
    coordinator: str | None,
    rank: int | None,
    size: int | None,
) -> None:
    """Fit a model to a TABLE: .csv, .tsv (also compressed) or .parquet, with column names, or .npy.

    Every column but the target is an input; text becomes one input for each value, times become days. Scales,
    smoothness and noise are learned. Ctrl-C stops and keeps what there is.

    \b
        dualgp fit houses.csv --target price -o houses.dgp
        dualgp fit houses.csv --target price -o houses.dgp --drop id --hold-out 0.1
        dualgp fit big.parquet --target y -o big.dgp --max-seconds 3600
        dualgp fit big.parquet --target y -o big.dgp --resume
        dualgp fit molecules.csv --smiles smiles --target score -o molecules.dgp

    On many processes, on one host or many, each reads its own rows of a .npy or .parquet file of numbers. Start the
    same command everywhere, under SLURM or with three more options; after a failure it goes on from where it was.

    \b
        srun dualgp fit big.npy --target 8 -o big.dgp --distributed
        dualgp fit big.npy --target 8 -o big.dgp --distributed --coordinator 10.0.0.1:1234 --rank 0 --size 2
    """
    if distributed:
        if hold_out or missing != "fill" or resume:
            raise ValueError("--hold-out, --missing and --resume are for a fit in one process, not for --distributed.")
        settings = {"n_samples": samples, "tol": tol, "max_seconds": max_seconds, "random_state": seed}
        return _fit_together(table, target, output, drop, settings, quiet, (coordinator, rank, size))
    if (coordinator, rank, size) != (None, None, None):
        raise ValueError("--coordinator, --rank and --size are for --distributed.")
    partial = output.with_name(output.name + ".partial")
    pieces = [partial, Path(f"{partial}.solve")]
    if not output.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {output.parent} to write {output.name} to. Make it first.")
    if not resume and any(piece.exists() for piece in pieces):
        raise ValueError(f"{partial} is there from an unfinished fit. Pass --resume to go on from it, or delete it.")
    if resume and not any(piece.exists() for piece in pieces):
        click.echo("There is no unfinished fit to resume: starting from the beginning.", err=True)
    began = time.perf_counter()
    data = _read(table)
    if not quiet:
        click.echo(f"Read {data.num_rows:,} rows and {data.num_columns} columns.", err=True)

    from dualgp.data.smiles import make_smiles_encoding
    from dualgp.data.tables import make_encoding
    from dualgp.io import save
    from dualgp.solvers import Result
    from dualgp.tablemodel import fit_table

    # Before the split: what is rare may be in one part only.
    encoding: Any
    if smiles is None:
        encoding = make_encoding(data, target, drop, missing)
    else:
        fingerprint = {"radius": radius, "size": fingerprint_size, "counts": not bits, "invalid": invalid}
        encoding = make_smiles_encoding(data, smiles, target, **fingerprint)
    data, aside = _split(data, hold_out, seed)
    settings = {"n_samples": samples, "tol": tol, "max_seconds": max_seconds, "random_state": seed}
    try:
        model = fit_table(data, target, encoding=encoding, checkpoint=str(partial), verbose=int(not quiet), **settings)
    except KeyboardInterrupt:
        there = any(piece.exists() for piece in pieces)
        click.echo("Interrupted." + (" --resume goes on from here." if there else ""), err=True)
        sys.exit(INTERRUPTED)
    for note in model.encoding.notes:
        click.echo(note)
    click.echo(model.regressor.report())
    save(model, output)
    click.echo(f"Wrote {output} ({output.stat().st_size / 1e6:.1f} MB) after {time.perf_counter() - began:.0f} s.")
    if aside is not None:
        click.echo(f"\nOn {aside.num_rows:,} rows held out:")
        try:
            _show(model.evaluate(aside))
        except ValueError as error:
            click.echo(f"They cannot be compared: {error}")
    if model.regressor.finished_:
        return
    go_on = "--resume goes on from here." if any(piece.exists() for piece in pieces) else "More time would help."
    click.echo(f"The fit is not finished. The model can be used; {go_on}", err=True)
    if model.regressor.posterior_.solution.result is Result.DIVERGED:
        sys.exit(NOT_SOLVED)
    if "Interrupted" in model.regressor.message_ or "interrupted" in model.regressor.posterior_.solution.message:
        sys.exit(INTERRUPTED)


@main.command()
@model_argument
@table_argument
@_output("Where to write the predictions (.csv, .tsv or .parquet).")
@_plain_errors
def predict(model: Path, table: Path, output: Path) -> None:
    """Predict for every row of a TABLE: mean, std, and the 5 % and 95 % points, q05 and q95.

    They describe a new observation, noise included: 90 % should lie between q05 and q95. Rows keep their order.

    \b
        dualgp predict houses.dgp new.csv -o predictions.csv
    """
    loaded, data = _load(model), _read(table)
    columns = loaded.predict(data)
    for sentence in loaded.encoding.unseen(data):
        click.echo(f"Note: {sentence}", err=True)
    _write(columns, output)
    click.echo(f"Wrote {output}: {data.num_rows:,} rows.")


@main.command()
@model_argument
@table_argument
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_plain_errors
def evaluate(model: Path, table: Path, as_json: bool) -> None:
    """How good are predictions for a TABLE that has the target too, and was not fitted to?

    RMSE, negative log likelihood (NLL), coverage of the 90 % band and CRPS, next to ridge regression and the mean of
    the fitted data. Lower is better, except for coverage: that should be 90 %.

    \b
        dualgp evaluate houses.dgp held_out.csv
    """
    found = _load(model).evaluate(_read(table))
    click.echo(json.dumps(found, indent=2)) if as_json else _show(found)


@main.command()
@model_argument
@table_argument
@click.option("-n", "--number", type=click.IntRange(1), default=8, show_default=True, help="Of functions.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which of the model's functions.")
@_output("Where to write them (.csv, .tsv or .parquet).")
@_plain_errors
def sample(model: Path, table: Path, number: int, seed: int, output: Path) -> None:
    """Posterior functions at the rows of a TABLE: one column for each function, without noise.

    Each is one way the truth could be; the same function in every row, so that differences between rows make sense.

    \b
        dualgp sample houses.dgp grid.csv -n 20 -o functions.csv
    """
    data = _read(table)
    _write(_load(model).sample(data, number, seed), output)
    click.echo(f"Wrote {output}: {number} functions at {data.num_rows:,} rows.")


@main.command()
@model_argument
@_plain_errors
def info(model: Path) -> None:
    """What is in a model: its columns, what was learned, and how good the solution is.

    \b
        dualgp info houses.dgp
    """
    loaded = _load(model)
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
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Held-out rows with the target; otherwise each fitted row is predicted from all others.",
)
@_output("Where to write the page.")
@_plain_errors
def report(model: Path, data: Path | None, output: Path) -> None:
    """One self-contained HTML page about a model: plots, figures and what they mean.

    \b
        dualgp report houses.dgp -o houses.html
        dualgp report houses.dgp --data held_out.csv -o houses.html
    """
    from dualgp.report import write_report

    write_report(_load(model), output, None if data is None else _read(data))
    click.echo(f"Wrote {output} ({output.stat().st_size / 1e3:.0f} kB).")


def _fit_together(
    table: Path, target: str, output: Path, drop: tuple[str, ...], settings: dict, quiet: bool, where: tuple
) -> None:
    from dualgp import distributed
    from dualgp.data.shares import open_rows

    open_rows(table).check(target, drop)  # what is wrong for all is said before anyone waits
    if not output.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {output.parent} to write {output.name} to. Make it first.")
    distributed.initialize(*where)
    with distributed.together():
        _plain_errors(_fit_as_one_of_many)(table, target, output, drop, settings, quiet)
        distributed.finish()


def _fit_as_one_of_many(
    table: Path, target: str, output: Path, drop: tuple[str, ...], settings: dict, quiet: bool
) -> None:
    from dualgp.io import save
    from dualgp.sharding import writes
    from dualgp.tablefit import fit_share

    began, partial = time.perf_counter(), output.with_name(output.name + ".partial")
    model = fit_share(table, target, drop=drop, checkpoint=partial, verbose=int(writes() and not quiet), **settings)
    report = model.regressor.report()
    save(model, output)
    if not writes():
        return
    if model.regressor.finished_:
        partial.unlink(missing_ok=True)
    click.echo(report)
    click.echo(f"Wrote {output} ({output.stat().st_size / 1e6:.1f} MB) after {time.perf_counter() - began:.0f} s.")
    if not model.regressor.finished_:
        click.echo("The fit is not finished. The model can be used; the same command goes on from here.", err=True)


def _read(path: Path) -> Any:
    from dualgp.data.tables import read_table

    return read_table(path)


def _load(path: Path) -> Any:
    from dualgp.io import load
    from dualgp.tablemodel import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model written by `dualgp fit`.")
    return model


def _split(table: Any, share: float, seed: int) -> tuple[Any, Any]:
    if share == 0:
        return table, None
    import numpy as np

    order = np.random.default_rng(seed).permutation(table.num_rows)
    number = round(share * table.num_rows)
    if not 0 < number < table.num_rows:
        raise ValueError(f"--hold-out {share} of {table.num_rows} rows leaves nothing on one side.")
    return table.take(np.sort(order[number:])), table.take(np.sort(order[:number]))


def _write(columns: dict, path: Path) -> None:
    import pyarrow
    from pyarrow import csv, parquet

    table = pyarrow.table(columns)
    if path.suffix in (".parquet", ".pq"):
        parquet.write_table(table, path)
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        with open(path, "wb") as file:
            file.write((delimiter.join(columns) + "\n").encode())  # pyarrow would put quotes around the names
            csv.write_csv(table, file, csv.WriteOptions(delimiter=delimiter, include_header=False))


def _show(found: dict[str, dict[str, float]]) -> None:
    from dualgp.tablemodel import readable

    click.echo(f"{'':18}{'RMSE':>12}{'NLL':>10}{'90 % band':>12}{'CRPS':>12}")
    for name, line in found.items():
        rmse, nll, crps = (readable(line[key]) for key in ("rmse", "nll", "crps"))
        click.echo(f"{name:18}{rmse:>12}{nll:>10}{100 * line['coverage90']:>10.1f} %{crps:>12}")


if __name__ == "__main__":
    main()
