"""The examples run, and are short."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "demo.py")  # `make demo` runs that


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_runs_and_is_short(script, tmp_path):
    if "botorch" in script:
        pytest.importorskip("botorch", reason="BoTorch is an extra: pip install 'dualgp[botorch]'")
    if "rdkit" in (FOLDER / script).read_text():
        pytest.importorskip("rdkit", reason="the example is about molecules")
    done = subprocess.run([sys.executable, FOLDER / script], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3
    assert len((FOLDER / script).read_text().splitlines()) < 60


def test_there_are_four():
    assert len(SCRIPTS) >= 4
