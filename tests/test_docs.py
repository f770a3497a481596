"""README and documentation are true: Python and commands run, links lead somewhere, figures are those of files."""

import ast
import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import matplotlib
import pytest
from click.testing import CliRunner
from matplotlib import pyplot

import dualgp
from dualgp.table.cli import main

matplotlib.use("Agg")
ROOT = Path(__file__).parents[1]
DOCS, DATA = ROOT / "docs", ROOT / "examples" / "data"
PAGES = {str(p.relative_to(ROOT)): p.read_text() for p in [ROOT / "README.md", *sorted(DOCS.glob("**/*.md"))]}
PAGES |= {name: (ROOT / name).read_text() for name in ("CONTRIBUTING.md", "CHANGELOG.md", "llms.txt")}
BLOCKS = {name: re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL) for name, text in PAGES.items()}
PYTHON = {name: [code for kind, code in blocks if kind == "python"] for name, blocks in BLOCKS.items()}
SHELL = {name: [code for kind, code in blocks if kind in ("sh", "console")] for name, blocks in BLOCKS.items()}
NEEDED = {"dualgp.botorch": "botorch", "MorganFingerprint": "rdkit"}
SMALL = 300  # rows of the houses
API = re.findall(r"(?:autoclass|autofunction|data):: (\S+)", "".join(PAGES[n] for n in PAGES if "docs/reference" in n))


COMPLETE = ("README.md", "docs/index.md", "docs/start/", "docs/tutorials/")  # other pages begin after docs/index.md


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the files of examples/data, the long one cut."""
    for file in DATA.glob("*.csv"):
        (tmp_path / file.name).write_text("\n".join(file.read_text().splitlines()[: SMALL + 1]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def needs_installed(text: str) -> None:
    for word, package in NEEDED.items():
        if word in text:
            pytest.importorskip(package, reason=f"the page needs {package}, which is an extra")


@pytest.mark.parametrize("page", [name for name, blocks in PYTHON.items() if blocks and name != "CONTRIBUTING.md"])
def test_the_python_of_a_page_runs(page, folder):
    needs_installed("".join(PYTHON[page]))
    namespace = {}
    for block in PYTHON[page] if page.startswith(COMPLETE) else PYTHON["docs/index.md"] + PYTHON[page]:
        exec(compile(block, page, "exec"), namespace)
    pyplot.close("all")


def test_there_is_python_to_run():
    assert len(PYTHON["README.md"]) >= 2
    assert sum(map(len, PYTHON.values())) >= 25


def shown_commands(page: str) -> list[list[str]]:
    """The words of every command in the shell blocks of a page, without what stands after a pipe."""
    found = []
    for block in SHELL[page]:
        prompted = "$ " in block
        for line in block.replace("\\\n", " ").splitlines():
            if prompted and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ ").split(" > ")[0], comments=True)
            found.append(words[words.index("|") + 1 :] if "|" in words else words)
    return [words for words in found if words]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/table.md"])
def test_the_commands_of_a_page_run(page, folder):
    commands = [words[1:] for words in shown_commands(page) if words[0] == "dualgp"]
    assert len(commands) >= 3
    for words in commands:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, (words, done.output)


@pytest.mark.parametrize("page", [name for name, blocks in SHELL.items() if blocks])
def test_commands_that_are_shown_exist(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for words in shown_commands(page):
        if words[0] == "make":
            assert set(words[1:]) <= set(targets), words
        if words[0] == "python" and words[1] not in ("-m", "-c"):
            assert (ROOT / words[1]).exists(), words
        if words[0] == "dualgp" and not words[1].startswith("-"):
            options = {name for option in main.commands[words[1]].params for name in option.opts}
            assert {word for word in words if re.match(r"--\w", word)} <= options, words


@pytest.mark.parametrize("page", PAGES)
def test_scripts_that_are_named_exist(page):
    named = re.findall(r"`(?:python )?((?:docs|benchmarks|experiments|examples|tests)/[\w/]+\.py)", PAGES[page])
    assert not [name for name in named if not (ROOT / name).exists()]


def anchors(text: str) -> set[str]:
    """Of the headings of a page, as GitHub and MyST make them."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(page: str) -> list[str]:
    """Targets within the repository."""
    text = re.sub(r"```(?!\{).*?```", "", PAGES[page], flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + [f"{link}.md" for link in re.findall(r":link: (\S+)", text)]
    return [link for link in found if "://" not in link]


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_are_there(page):
    folder = DOCS if page == "llms.txt" else (ROOT / page).parent
    wrong = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (folder / name).resolve() if name else ROOT / page
        text = target.read_text() if target.suffix == ".md" and target.exists() else ""
        if "{include}" in text:
            text = (ROOT / re.findall(r"\{include\} [./]*(\S+)", text)[0]).read_text()
        if not target.exists() or (anchor and anchor not in anchors(text)):
            wrong.append(link)
    assert not wrong


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for name, text in PAGES.items():
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL):
            for entry in block.splitlines():
                if entry and not entry.startswith(":"):
                    listed |= {str(p.relative_to(ROOT)) for p in (ROOT / name).parent.glob(f"{entry}.md")}
    assert {n for n in PAGES if n.startswith("docs/")} - listed == {"docs/index.md"}


def resolved(name: str) -> object:
    """What the dotted name of the reference stands for."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{name} is not there")


@pytest.mark.parametrize("package", ["", "kernels", "operators", "solvers", "posterior", "learning"])
def test_every_public_name_is_in_the_reference(package):
    module = import_module(f"dualgp.{package}".rstrip("."))
    names = [name for name in module.__all__ if not hasattr(getattr(module, name), "__path__")]
    listed = [resolved(name) for name in API if ".botorch." not in name]
    missing = [n for n in names if not any(getattr(module, n) is found for found in listed)]
    assert not [
        name
        for name in missing
        if f"automodule:: dualgp.{name}" not in PAGES["docs/reference/plots.md"] and name != "distributed"
    ]


def test_every_name_for_botorch_is_in_the_reference():
    tree = ast.parse((Path(dualgp.__file__).parent / "botorch" / "__init__.py").read_text())
    names = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    assert {f"dualgp.botorch.{name}" for name in names} <= set(API)


def test_pages_say_what_result_files_say():
    done = subprocess.run([sys.executable, DOCS / "figures.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_result_line_says_where_it_comes_from():
    for file in ROOT.glob("*/results/*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert all({"commit", "cores"} <= set(line) for line in lines), file.name


def prose(text: str) -> str:
    """Without code, comments, figures from files and the targets of links."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--(figure|table).*?<!--/-->", "", text, flags=re.DOTALL)
    return re.sub(r"\]\(.*?\)|`.*?`|<!--.*?-->", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", *(name for name in PAGES if name.startswith("docs/benchmarks"))])
def test_measured_numbers_come_from_files(page):
    by_hand = re.findall(r"(?<![\w.:])\d+\.\d+(?![\w.]*\])", prose(PAGES[page]))
    allowed = {"README.md": {"3.11", "2.0"}}.get(page, set())
    assert page == "docs/benchmarks/devices.md" or not set(by_hand) - allowed - LIMITS


LIMITS = {"0.01", "0.3", "0.1", "1.8", "3.322", "0.65", "1.02"}  # of the set-up, not measured


def test_the_readme_is_short():
    text = re.sub(r"<!--.*?-->", "", PAGES["README.md"], flags=re.DOTALL)
    assert len(PAGES["README.md"].splitlines()) <= 130
    assert len(re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL).split()) <= 700
