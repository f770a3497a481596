"""`dualgp fit --distributed`: a fit as one of many processes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from dualgp.table.cli.group import exit_code, plain_errors, say_written


def fit_together(
    table: Path,
    target: str,
    output: Path,
    drop: tuple[str, ...],
    settings: dict[str, Any],
    quiet: bool,
    where: tuple[str | None, int | None, int | None],
) -> None:
    """Wait for the other processes at `where` (coordinator, rank, size), and fit with them."""
    from dualgp import distributed
    from dualgp.table.row_files import open_rows

    open_rows(table).check(target, drop)  # report errors before waiting for others
    distributed.initialize(*where)
    with distributed.together():
        code = plain_errors(_fit_as_one_of_many)(table, target, output, drop, settings, quiet)
        distributed.finish()
    sys.exit(code)


def _fit_as_one_of_many(
    table: Path, target: str, output: Path, drop: tuple[str, ...], settings: dict[str, Any], quiet: bool
) -> int:
    from dualgp.checkpoints import delete
    from dualgp.io import save
    from dualgp.operators.layout import writes
    from dualgp.table.fit_together import fit_share

    began, partial = time.perf_counter(), output.with_name(output.name + ".partial")
    model = fit_share(table, target, drop=drop, checkpoint=partial, verbose=int(writes() and not quiet), **settings)
    report, code = model.regressor.report(), exit_code(model.regressor)
    save(model, output)
    if writes():
        click.echo(report)
        say_written(output, began)
        if model.regressor.finished_:
            delete(partial)
        else:
            go_on = "see above for a remedy" if code else "the same command goes on from here"
            click.echo(f"The fit is not finished. The model can be used; {go_on}.", err=True)
    return code
