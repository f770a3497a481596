"""Imports point left in the flow: rows -> kernel -> operator -> solver -> posterior -> application. And sizes."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dualgp

ROOT = Path(dualgp.__file__).parent
MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in ROOT.rglob("*.py")}

# From left to right. A module belongs to the place that has the longest beginning of its name, and may import its own
# place and those before it.
FLOW = {
    "words": ("_arrays", "_checks", "_files", "_morgan", "_npz", "_random", "_threads", "_types"),
    "kernels": ("kernels",),
    "operators": ("operators",),
    "checkpoints": ("checkpoints",),
    "solvers": ("solvers",),
    "posterior": ("posterior",),
    "gp": ("gp", "budget", "fields", "updates"),
    "learning": ("learning",),
    "decisions": ("decisions",),
    "columns": ("columns",),
    "sklearn": ("sklearn",),
    "around": ("_compact", "_sound", "distributed", "io", "metrics", "plots"),
    "botorch": ("botorch",),
    "table": ("table",),
    "front door": ("__init__", "__main__"),
}
PLACES = list(FLOW)
# Doors that are shut although they lead to the left.
SHUT = {
    "solvers": ("kernels",),  # a solver works on any matrix
    "posterior": ("checkpoints", "solvers"),  # weights and residuals are arrays, whoever found them
    "table": ("botorch",),
}
# Doors to the right that are open, from module to module, and why.
OPEN = {
    ("gp", "learning"): "the method GaussianProcess.learn is a short cut to an application of the class",
    ("decisions.thompson", "io"): "a sampler saves itself, and io knows every class that a file may hold",
}
NOT_CORE = ("columns", "table", "botorch")
MOST_CODE_LINES, MOST_LINES_OF_A_FILE, MOST_PUBLIC_NAMES = 10_650, 350, 40


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def place_of(module: str) -> str:
    """The place of a module in the flow."""
    found = [(len(name), place) for place, names in FLOW.items() for name in names if is_in(module, name)]
    assert found, f"{module} has no place in FLOW: which modules may it import, and which may import it?"
    return max(found)[1]


def imports(tree: ast.AST) -> set[str]:
    """Every module or name imported at run time, also inside functions."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return set().union(*(imports(child) for child in tree.orelse))
    if isinstance(tree, ast.Import):
        return {alias.name for alias in tree.names}
    if isinstance(tree, ast.ImportFrom):
        assert tree.level == 0, "imports are absolute here"
        return {f"{tree.module}.{alias.name}" for alias in tree.names}
    return set().union(*(imports(child) for child in ast.iter_child_nodes(tree)))


def neighbours(module: str) -> set[str]:
    """The modules of this package that a module imports."""
    found = imports(ast.parse(MODULES[module].read_text())) - {"dualgp.__version__"}
    inner = [name.removeprefix("dualgp").removeprefix(".") for name in found if is_in(name, "dualgp")]
    return {name if name in MODULES else name.rpartition(".")[0] or "__init__" for name in inner} - {module}


def is_open(importer: str, imported: str) -> bool:
    """Whether the table lets one module import another."""
    here, there = place_of(importer), place_of(imported)
    if any(is_in(importer, a) and is_in(imported, b) for a, b in OPEN):
        return True
    return PLACES.index(there) <= PLACES.index(here) and there not in SHUT.get(here, ())


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_nothing_to_its_right(module):
    assert not sorted(name for name in neighbours(module) if not is_open(module, name))


def test_the_flow_names_nothing_that_is_not_there():
    names = [name for names in FLOW.values() for name in names] + list(NOT_CORE)
    assert not [name for name in names if not any(is_in(module, name) for module in MODULES)]


def test_every_door_to_the_right_is_used():
    used = {(a, b) for a, b in OPEN for m in MODULES if is_in(m, a) for n in neighbours(m) if is_in(n, b)}
    assert used == set(OPEN)


@pytest.mark.parametrize("module", MODULES)
def test_module_leaves_the_jax_configuration_alone(module):
    tree = ast.parse(MODULES[module].read_text())
    attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not any(name.startswith("jax.config") for name in attributes | imports(tree))


@pytest.mark.parametrize("module", MODULES)
def test_module_uses_nothing_that_jax_does_not_promise(module):
    tree = ast.parse(MODULES[module].read_text())
    attributes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not [name for name in attributes | imports(tree) if name.startswith(("jax._", "jaxlib._"))]


def test_importing_the_package_leaves_x64_off_and_heavy_packages_alone():
    code = (
        "import sys, jax, dualgp; assert not jax.config.jax_enable_x64; "
        "assert not {'sklearn', 'matplotlib', 'torch', 'botorch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def code_lines(path: Path) -> int:
    """Lines without blank ones, comments and docstrings."""
    source, docstrings = path.read_text(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = {i for i, line in enumerate(source.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
    return len(lines - docstrings)


def test_the_core_is_as_small_as_promised():
    core = [module for module in MODULES if not any(is_in(module, name) for name in NOT_CORE)]
    assert sum(code_lines(MODULES[module]) for module in core) <= MOST_CODE_LINES


@pytest.mark.parametrize("module", MODULES)
def test_comments_are_sentences_and_not_their_ends(module):
    assert not re.findall(r"#  ?of .*", MODULES[module].read_text(), flags=re.IGNORECASE)


@pytest.mark.parametrize("module", MODULES)
def test_no_file_is_long(module):
    assert len(MODULES[module].read_text().splitlines()) <= MOST_LINES_OF_A_FILE


def test_public_names_are_few():
    assert len(dualgp.__all__) <= MOST_PUBLIC_NAMES
