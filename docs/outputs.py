"""Runs what README and docs show with its output, and writes what it prints: python docs/outputs.py

Between <!--output--> and <!--/output--> stands a block of commands (`console`, each after a dollar sign) or of Python.
They run in a folder with the files of examples/data, which the blocks of a page share. Takes minutes.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKER = re.compile(r"<!--output-->\n```(console|python)\n(.*?)```\n(.*?)<!--/output-->", re.DOTALL)


def commands(block: str) -> list[str]:
    """The command lines of a block."""
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def run_command(line: str, folder: Path) -> str:
    """What a `dualgp` command prints, notes included."""
    name, *arguments = shlex.split(line, comments=True)
    if name != "dualgp":
        raise ValueError(f"Only `dualgp` commands are run here, got {line!r}.")
    command = [sys.executable, "-m", "dualgp", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{line}\n{done.stdout}")
    return done.stdout


def with_output(kind: str, block: str, folder: Path) -> str:
    """The block with what it prints now."""
    if kind == "console":
        shown = "\n".join(f"$ {line}\n{run_command(line, folder)}" for line in commands(block)).rstrip()
        return f"```console\n{shown}\n```\n"
    printed, before = io.StringIO(), Path.cwd()
    os.chdir(folder)
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    os.chdir(before)
    return f"```python\n{block}```\n\n```text\n{printed.getvalue().rstrip()}\n```\n"


def run_again(folder: Path, match: re.Match) -> str:
    """What stands between the markers, run anew."""
    return f"<!--output-->\n{with_output(match[1], match[2], folder)}<!--/output-->"


def main() -> None:
    """Every page that has such blocks, or those that are named."""
    pages = [Path(name) for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    for page in pages:
        old = page.read_text()
        with tempfile.TemporaryDirectory() as name:
            for file in (ROOT / "examples" / "data").glob("*.csv"):
                shutil.copy(file, name)
            new = MARKER.sub(partial(run_again, Path(name)), old)
        if new != old:
            page.write_text(new)
            print(f"Wrote {page}.")


if __name__ == "__main__":
    main()
