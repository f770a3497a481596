"""Sphinx settings. Built by `make docs`, warnings as errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from dualgp import __version__

project = "dualgp"
author = "The dualgp developers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "dualgp"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"  # `x` in docstrings is code, as in Markdown
