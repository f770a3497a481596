"""The group of commands, and their common arguments, errors, tables and models."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dualgp import __version__
from dualgp._files import check_file
from dualgp.table.cli.cache import keep_programs

BAD_INPUT, INTERRUPTED, NOT_SOLVED = 2, 130, 3


class FilePath(click.Path):
    """A path to a file. A name that no file can have is refused here, not by the operating system."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if "\0" in str(value):
            self.fail(f"{value!r} is not a file's name.", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range; NaN is in none."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


model_argument = click.argument("model", type=FilePath(exists=True, dir_okay=False, path_type=Path))
table_or_stdin = click.argument("table", type=FilePath(exists=True, dir_okay=False, path_type=Path, allow_dash=True))
table_argument = click.argument("table", type=FilePath(exists=True, dir_okay=False, path_type=Path))


def output_option(help: str) -> Callable:
    """`-o` and `--output`."""
    kind = FilePath(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", type=kind, required=True, help=help)


def check_output(output: Path, *inputs: Path | None) -> None:
    """Check before the work that the output can be written and is not an input."""
    check_file(output)
    if any(file is not None and output.resolve() == file.resolve() for file in inputs):
        raise ValueError(f"{output} is what is read from. Choose another name for the output.")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {output.parent} to write {output.name} to. Make it first.")
    try:
        with tempfile.NamedTemporaryFile(prefix=output.name, suffix=".probe", dir=output.parent):
            pass
    except OSError as error:
        raise ValueError(f"{output} cannot be written ({error.strerror}).") from None


def plain_errors(command: Callable) -> Callable:
    """Bad input is a sentence and exit code 2, not a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _as_note
                return command(*args, **kwargs)
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


def _as_note(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Show a warning as a sentence."""
    where = "" if category is UserWarning else f" ({category.__name__}, {filename}:{lineno})"
    click.echo(f"Note: {message}{where}", err=True)


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

    Compiled programs are kept in the user's cache folder; DUALGP_CACHE=off in the environment turns that off.
    """
    keep_programs()


def read_table(path: Path) -> Any:
    """Read a table of any kind."""
    from dualgp.columns import tables

    return tables.read_table(path)


def spooled(path: Path) -> Path:
    """The path, or for - a file with the CSV that comes from the standard input."""
    if str(path) != "-":
        return path
    with tempfile.NamedTemporaryFile(suffix=".csv", delete=False) as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return Path(file.name)


def load_model(path: Path) -> Any:
    """Read a model that `dualgp fit` has written."""
    from dualgp.io import load
    from dualgp.table.model import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model written by `dualgp fit`.")
    return model


def exit_code(regressor: Any) -> int:
    """The exit code of a fit; 0 also if it reached its time limit."""
    from dualgp.solvers import Result

    if regressor.finished_:
        return 0
    result = regressor.posterior_.solution.result
    if result is Result.DIVERGED:
        return NOT_SOLVED
    is_interrupted = getattr(regressor, "interrupted_", False) or result is Result.INTERRUPTED
    return INTERRUPTED if is_interrupted else 0


def say_written(model: Path, began: float) -> None:
    """The size of a model's file, and the time it took."""
    click.echo(f"Wrote {model} ({model.stat().st_size / 1e6:.1f} MB) after {time.perf_counter() - began:.0f} s.")


def show_scores(found: dict[str, dict[str, float]]) -> None:
    """A line for each model that was compared."""
    from dualgp.table.advice import readable

    click.echo(f"{'':18}{'RMSE':>12}{'NLL':>10}{'90 % band':>12}{'CRPS':>12}")
    for name, line in found.items():
        rmse, nll, crps = (readable(line[key]) for key in ("rmse", "nll", "crps"))
        click.echo(f"{name:18}{rmse:>12}{nll:>10}{100 * line['coverage90']:>10.1f} %{crps:>12}")
