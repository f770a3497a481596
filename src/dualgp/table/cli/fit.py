"""`dualgp fit`: a table becomes a model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dualgp.table.cli.group import (
    INTERRUPTED,
    Number,
    check_output,
    exit_code,
    main,
    output_option,
    plain_errors,
    read_table,
    say_written,
    show_scores,
    table_argument,
)
from dualgp.table.cli.together import fit_together

if TYPE_CHECKING:
    from dualgp.columns.encoding import Missing


@main.command()
@table_argument
@click.option("--target", required=True, multiple=True, help="The column to predict. May be given several times.")
@output_option("Where to write the model.")
@click.option("--smiles", metavar="COLUMN", help="Predict from the molecules in this column, as SMILES (needs RDKit).")
@click.option(
    "--radius",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The radius of Morgan fingerprints, in bonds.",
)
@click.option(
    "--fingerprint-size",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="The number of columns of fingerprints.",
)
@click.option("--bits", is_flag=True, help="Use bits instead of counts of fragments.")
@click.option(
    "--invalid",
    type=click.Choice(["raise", "drop"]),
    default="raise",
    show_default=True,
    help="SMILES that cannot be read: refuse, or drop the rows (and predict nothing for such rows).",
)
@click.option("--weights", metavar="COLUMN", help="The column of the rows' weights: 2 counts twice, 0 not at all.")
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
    type=Number(0, 0.9, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Hold out a random fraction of the rows and evaluate on them, e.g. 0.1.",
)
@click.option(
    "--max-seconds", type=Number(0, min_open=True), help="Stop after about so many seconds, with the answer so far."
)
@click.option(
    "--samples", type=click.IntRange(2), default=16, show_default=True, help="The number of posterior functions."
)
@click.option(
    "--tol", type=Number(0, 1), help="The relative residual to reach, instead of stopping by rows kept aside."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of all random numbers.")
@click.option("--resume", is_flag=True, help="Resume an unfinished fit of the same table.")
@click.option(
    "--transform",
    type=click.Choice(["auto", "none", "log", "sqrt", "yeo-johnson"]),
    default="auto",
    show_default=True,
    help="The function of the target that is modelled; predictions are in the target's own units.",
)
@click.option("--robust", is_flag=True, help="Expect outliers: rows far from their predictions count less.")
@click.option(
    "--noise",
    type=click.Choice(["constant", "input-dependent"]),
    default="constant",
    show_default=True,
    help="Whether the noise is the same everywhere, or depends on the inputs.",
)
@click.option("--quiet", is_flag=True, help="Show no progress. Without a terminal there is none.")
@click.option("--verbose", is_flag=True, help="Print also what was learned, and how well the equations were solved.")
@click.option("--distributed", is_flag=True, help="Fit as one of many processes; see above.")
@click.option("--coordinator", metavar="HOST:PORT", help="Where the first process listens. Not needed under SLURM.")
@click.option("--rank", type=click.IntRange(0), help="The number of this process, from 0.")
@click.option("--size", type=click.IntRange(1), help="How many processes there are.")
@plain_errors
def fit(
    table: Path,
    target: tuple[str, ...],
    output: Path,
    smiles: str | None,
    radius: int,
    fingerprint_size: int,
    bits: bool,
    invalid: Literal["raise", "drop"],
    weights: str | None,
    drop: tuple[str, ...],
    missing: Missing,
    hold_out: float,
    max_seconds: float | None,
    samples: int,
    tol: float | None,
    seed: int,
    resume: bool,
    transform: str,
    robust: bool,
    noise: str,
    quiet: bool,
    verbose: bool,
    distributed: bool,
    coordinator: str | None,
    rank: int | None,
    size: int | None,
) -> None:
    """Fit a model to a TABLE: .csv, .tsv (also .gz, .bz2) or .parquet, with column names, or .npy.

    Every column but the target is an input; text is one input whatever the number of its values, times become days and
    seasons. Scales, smoothness and noise are learned. Ctrl-C stops and keeps what there is.

    \b
        dualgp fit houses.csv --target price -o houses.dgp
        dualgp fit houses.csv --target price -o houses.dgp --drop id --hold-out 0.1
        dualgp fit big.parquet --target y -o big.dgp --max-seconds 3600
        dualgp fit big.parquet --target y -o big.dgp --resume
        dualgp fit molecules.csv --smiles smiles --target score -o molecules.dgp

    On many processes, on one host or many, each reads its own rows of a .npy or .parquet file of numbers. Start the
    same command everywhere, under SLURM or with three more options; after a failure it resumes.

    \b
        srun dualgp fit big.npy --target 8 -o big.dgp --distributed
        dualgp fit big.npy --target 8 -o big.dgp --distributed --coordinator 10.0.0.1:1234 --rank 0 --size 2
    """
    quiet = quiet or not sys.stderr.isatty()
    settings: dict[str, Any] = {"n_samples": samples, "tol": tol, "max_seconds": max_seconds, "random_state": seed}
    check_output(output, table)
    if smiles is None and (radius, fingerprint_size, bits, invalid) != (1, 1024, False, "raise"):
        raise ValueError("--radius, --fingerprint-size, --bits and --invalid are for --smiles.")
    if distributed:
        is_plain = len(target) == 1 and weights is None and not robust and noise == "constant"
        is_plain = is_plain and transform in ("auto", "none")
        if hold_out or missing != "fill" or resume or smiles or not is_plain:
            raise ValueError(
                "--hold-out, --missing, --resume, --transform, --smiles, --weights, --robust, --noise and several "
                "targets are for one process, not for --distributed."
            )
        return fit_together(table, target[0], output, drop, settings, quiet, (coordinator, rank, size))
    if (coordinator, rank, size) != (None, None, None):
        raise ValueError("--coordinator, --rank and --size are for --distributed.")
    if smiles is not None and (drop or missing != "fill"):
        raise ValueError("--drop and --missing are not for --smiles: no other column is used.")
    _check_pieces(output, resume)
    began, data = time.perf_counter(), read_table(table)
    if not quiet:
        click.echo(f"Read {data.num_rows:,} rows and {data.num_columns} columns.", err=True)

    from dualgp.columns.encoding import make_encoding
    from dualgp.io import save
    from dualgp.table.model import fit_table
    from dualgp.table.smiles import make_smiles_encoding

    names = target[0] if len(target) == 1 else target
    # Before the split: rare values may be on one side only.
    encoding: Any
    if smiles is None:
        encoding = make_encoding(data, names, drop if weights is None else (weights, *drop), missing)
    else:
        encoding = make_smiles_encoding(
            data, smiles, names, radius=radius, size=fingerprint_size, counts=not bits, invalid=invalid
        )
    data, aside = _split(data, hold_out, seed)
    settings |= {"robust": robust, "noise": None if noise == "constant" else noise}
    settings |= {"checkpoint": str(_pieces(output)[0]), "verbose": int(not quiet), "target_transform": transform}
    try:
        model = fit_table(data, names, weights=weights, encoding=encoding, **settings)
    except KeyboardInterrupt:
        click.echo("Interrupted." + (" --resume goes on from here." if _is_unfinished(output) else ""), err=True)
        sys.exit(INTERRUPTED)
    for note in (*model.encoding.notes, *model.regressor.decisions_):
        click.echo(note)
    regressor = model.regressor
    click.echo(regressor.report() if verbose else regressor.posterior_.report_size())
    save(model, output)
    say_written(output, began)
    if aside is not None:
        click.echo(f"\nOn {aside.num_rows:,} rows held out:")
        try:
            show_scores(model.evaluate(aside))
        except ValueError as error:
            click.echo(f"They cannot be compared: {error}")
            aside = None
    _conclude(model, aside, output)


def _conclude(model: Any, aside: Any, output: Path) -> None:
    """Three plain lines: how good, how sure, what next. And the exit code of an unfinished fit."""
    from dualgp.table.advice import advise, summarise

    advice = ""
    for one in model.outputs():
        checked = one.check(aside)
        if checked is not None:
            prediction, y, what = checked
            for line in summarise(y, prediction, what, one.encoding.target):
                click.echo(line)
            advice = advice or advise(y, prediction, one.encoding.target)
    click.echo(f"Next: {advice or f'dualgp predict {output} new.csv -o predictions.csv'}")
    if not model.regressor.finished_:
        go_on = "--resume goes on from here." if _is_unfinished(output) else "More time would help."
        click.echo(f"The fit is not finished. The model can be used; {go_on}", err=True)
        sys.exit(exit_code(model.regressor))


def _pieces(output: Path) -> list[Path]:
    """The files of an unfinished fit: of learning, and of the last solve."""
    partial = output.with_name(output.name + ".partial")
    return [partial, Path(f"{partial}.solve")]


def _is_unfinished(output: Path) -> bool:
    return any(piece.exists() for piece in _pieces(output))


def _check_pieces(output: Path, resume: bool) -> None:
    partial = _pieces(output)[0]
    if not resume and _is_unfinished(output):
        raise ValueError(f"{partial} is there from an unfinished fit. Pass --resume to go on from it, or delete it.")
    if resume and not _is_unfinished(output):
        click.echo("There is no unfinished fit to resume: starting from the beginning.", err=True)


def _split(table: Any, share: float, seed: int) -> tuple[Any, Any]:
    if share == 0:
        return table, None
    import numpy as np

    order = np.random.default_rng(seed).permutation(table.num_rows)
    number = round(share * table.num_rows)
    if not 0 < number < table.num_rows:
        raise ValueError(f"--hold-out {share} of {table.num_rows} rows leaves nothing on one side.")
    return table.take(np.sort(order[number:])), table.take(np.sort(order[:number]))
