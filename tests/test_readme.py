"""The README's Python is run as it stands, block after block, as a reader would."""

import re
from pathlib import Path


def test_the_readme_runs():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 2
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert namespace["post"].x.shape[0] == 2005
    assert namespace["sol"].steps == 2000
