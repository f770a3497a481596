"""What a user's type checker sees of the package, which ships `py.typed`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dualgp

pytest.importorskip("mypy", reason="mypy comes with the dev extra")
HERE, SOURCE = Path(__file__).parent, Path(dualgp.__file__).parents[1]
SETTINGS = ("--config-file=", "--follow-imports=silent", "--warn-unused-ignores")


@pytest.mark.parametrize("program", ["kernels", "model"])
def test_a_users_program_has_the_types_it_should(program):
    cache = f"--cache-dir={HERE.parent / '.mypy_cache' / program}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *SETTINGS, cache, str(HERE / "downstream" / f"{program}.py")],
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
