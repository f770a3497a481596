"""Sphinx settings. Built by `make docs`, warnings as errors."""

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from dualgp import __version__
from dualgp.table.cli import main

SOURCES = "".join(p.read_text() for p in (Path(__file__).parents[1] / "src/dualgp/botorch").glob("*.py"))
project = "dualgp"
author = copyright = "the dualgp developers"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"dualgp {__version__}"
html_extra_path = ["../llms.txt"]
copybutton_prompt_text = r"^\$ "
copybutton_prompt_is_regexp = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"  # `x` in docstrings is code, as in Markdown


class Stub(type):
    """Stands for a name of a package that is not installed: a class, a decorator, and its attributes likewise."""

    def __call__(cls, *args: object) -> object:
        return lambda function: function

    def __getattr__(cls, name: str) -> "Stub":
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(name, (), {})


if find_spec("torch") is None:  # the extra `botorch`, whose documentation needs no more than names
    for name in re.findall(r"^ *(?:from|import) ((?:torch|botorch|gpytorch)\S*)", SOURCES, flags=re.MULTILINE):
        for end in (*(match.start() for match in re.finditer(r"\.", name)), len(name)):
            sys.modules[name[:end]] = Stub(name[:end], (), {})  # type: ignore[assignment]


class Commands(SphinxDirective):
    """A section for every command of `dualgp`, with what `--help` says."""

    def run(self) -> list[nodes.Node]:
        return [self._section("dualgp", main), *(self._section(f"dualgp {n}", c) for n, c in main.commands.items())]

    def _section(self, name: str, command: click.Command) -> nodes.section:
        context = click.Context(command, info_name=name, **main.context_settings)
        section = nodes.section(ids=[name.replace(" ", "-")])
        section += [nodes.title(text=name), nodes.literal_block(text=command.get_help(context), language="text")]
        return section


def copy_sources(app: Sphinx, error: Exception | None) -> None:
    """Pages in Markdown beside those in HTML, as llms.txt links them."""
    for page in Path(app.srcdir).glob("*/*.md") if error is None else []:
        shutil.copy(page, Path(app.outdir) / page.relative_to(app.srcdir))


def setup(app: Sphinx) -> None:
    """The directive for the command line, and the copies."""
    app.add_directive("commands", Commands)
    app.connect("build-finished", copy_sources)
