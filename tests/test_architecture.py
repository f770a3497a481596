"""Imports point left in the flow: data -> kernel -> operator -> solver -> posterior -> application."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dualgp

ROOT = Path(dualgp.__file__).parent
MODULES = {".".join(("dualgp", *p.relative_to(ROOT).with_suffix("").parts)): p for p in ROOT.rglob("*.py")}
APPLICATIONS = (
    "learning",
    "maxima",
    "thompson",
    "estimator",
    "botorch",
    "plots",
    "tablemodel",
    "tablefit",
    "report",
    "distributed",
    "cli",
    "io",
)
FORBIDDEN = {
    "dualgp.kernels": ("operators", "solvers", "posterior", "gp", "data", *APPLICATIONS),
    "dualgp.operators": ("solvers", "posterior", "gp", "data", *APPLICATIONS),
    "dualgp.sharding": ("kernels", "operators", "solvers", "posterior", "gp", "data", *APPLICATIONS),
    "dualgp.solvers": ("kernels", "sharding", "operators.sharded", "posterior", "gp", "data", *APPLICATIONS),
    "dualgp.paths": ("posterior", "gp", "data", *APPLICATIONS),
    "dualgp.posterior": ("gp", "data", *APPLICATIONS),
    # GaussianProcess.learn is a door to learning, which is an application of that class.
    "dualgp.gp": ("data", *(name for name in APPLICATIONS if name != "learning")),
    "dualgp.metrics": ("kernels", "operators", "solvers", "posterior", "gp", "data", *APPLICATIONS),
}


def imports(tree: ast.AST) -> set[str]:
    """Every module or name imported at run time, also inside functions."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return set()
    if isinstance(tree, ast.Import):
        return {alias.name for alias in tree.names}
    if isinstance(tree, ast.ImportFrom):
        assert tree.level == 0, "imports are absolute here"
        return {tree.module} | {f"{tree.module}.{alias.name}" for alias in tree.names}
    return set().union(*(imports(child) for child in ast.iter_child_nodes(tree)))


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_nothing_to_its_right(module):
    found = imports(ast.parse(MODULES[module].read_text()))
    for package, names in FORBIDDEN.items():
        if module == package or module.startswith(package + "."):
            closed = tuple(f"dualgp.{name}" for name in names)
            assert not {name for name in found if name in closed or name.startswith(tuple(f"{c}." for c in closed))}


@pytest.mark.parametrize("module", MODULES)
def test_module_leaves_the_jax_configuration_alone(module):
    source = MODULES[module].read_text()
    attributes = {ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    assert not any(name.startswith("jax.config") for name in attributes | imports(ast.parse(source)))


def test_every_door_named_here_exists():
    assert all(package in MODULES or f"{package}.__init__" in MODULES for package in FORBIDDEN)


def test_importing_the_package_leaves_x64_off_and_heavy_packages_alone():
    code = (
        "import sys, jax, dualgp; assert not jax.config.jax_enable_x64; "
        "assert not {'sklearn', 'matplotlib', 'torch', 'botorch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
