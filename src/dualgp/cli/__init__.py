"""The command `dualgp`. Heavy imports wait inside the commands, so that `--help` answers at once."""

from dualgp.cli.fit import fit
from dualgp.cli.group import main
from dualgp.cli.use import evaluate, info, predict, report, sample

__all__ = ["evaluate", "fit", "info", "main", "predict", "report", "sample"]
