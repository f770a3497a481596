"""The command `dualgp`. Heavy imports wait inside the commands, so that `--help` answers at once."""

from dualgp.table.cli.fit import fit
from dualgp.table.cli.group import main
from dualgp.table.cli.use import evaluate, info, predict, report, sample

__all__ = ["evaluate", "fit", "info", "main", "predict", "report", "sample"]
