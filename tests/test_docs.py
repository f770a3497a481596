"""The Python in the README and in every page of the documentation is run as it stands, block after block."""

import re
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import dualgp

matplotlib.use("Agg")
ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {page.name: re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL) for page in PAGES}


def given() -> dict:
    """What docs/index.md says is there."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=300)
    x_new, key = rng.uniform(-2, 2, (7, 2)), jax.random.key(0)
    model = dualgp.GaussianProcess(dualgp.Matern32(1.0), noise=0.1)
    return {"jax": jax, "np": np, "dg": dualgp, "x": x, "y": y, "x_new": x_new, "key": key, "model": model}


@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    if page == "botorch.md":
        pytest.importorskip("botorch", reason="BoTorch is an extra: pip install 'dualgp[botorch]'")
    if any("MorganFingerprint" in block for block in BLOCKS[page]):
        pytest.importorskip("rdkit", reason="the page is about molecules")
    monkeypatch.chdir(tmp_path)
    namespace = {} if page == "README.md" else given()
    for block in BLOCKS[page]:
        exec(compile(block, page, "exec"), namespace)
    pyplot.close("all")


def test_there_is_python_to_run():
    assert len(BLOCKS["README.md"]) >= 2
    assert sum(map(len, BLOCKS.values())) >= 15


@pytest.mark.parametrize("page", [name for name in BLOCKS if name not in ("README.md", "index.md")])
def test_every_page_is_in_the_table_of_contents(page):
    assert f"\n{page.removesuffix('.md')}\n" in (ROOT / "docs" / "index.md").read_text()
