"""Sizes and names: a file is one noun that fits into a head, and nothing hides in __init__.py."""

import ast

import pytest
from house.source import PACKAGES, ROOT, committed, python_files, tree

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
DRAWERS = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc", "lib", "stuff"}

SOURCES = python_files(*PACKAGES, "bench", "examples")


@pytest.mark.parametrize("file", SOURCES)
def test_file_is_short(file: str) -> None:
    lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{file} has {lines} lines, over {MAX_FILE_LINES}: split it by its nouns."


@pytest.mark.parametrize("file", SOURCES)
def test_functions_are_short(file: str) -> None:
    long = []
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long.append(f"{file}:{node.lineno}: {node.name} has {lines} lines")
    assert not long, "\n".join(long) + f"\nAt most {MAX_FUNCTION_LINES}: name its steps and take them out."


def test_no_drawers_of_odds_and_ends() -> None:
    wrong = [
        name
        for name in committed()
        if name.endswith(".py") and DRAWERS & {part.removesuffix(".py") for part in name.split("/")}
    ]
    assert not wrong, f"{wrong}: name the file after the one noun it is about."


@pytest.mark.parametrize("file", [name for name in python_files() if name.endswith("__init__.py")])
def test_init_holds_a_docstring_and_nothing_else(file: str) -> None:
    body = tree(file).body
    assert ast.get_docstring(tree(file)), f"{file}: say in a docstring what the package is for."
    for node in body[1:]:
        names = [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
        assert names == ["__version__"], f"{file}:{node.lineno}: only a docstring and __version__ belong."


def test_every_package_has_an_init() -> None:
    """Without one a folder is not packed into the wheel."""
    folders = {name.rpartition("/")[0] for name in python_files()}
    missing = [folder for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()]
    assert not missing, f"{missing}: add an __init__.py with a docstring."


def test_test_folders_are_no_packages() -> None:
    inits = [name for name in committed() if name.startswith("tests/") and name.endswith("__init__.py")]
    assert not inits, f"{inits}: remove them; pytest imports by path, so equal names do not clash."


@pytest.mark.parametrize("file", python_files("reach_core"))
def test_the_vocabulary_is_documented(file: str) -> None:
    """Whatever both daemons share says its shape, unit and errors."""
    silent = []
    module = tree(file)
    if not ast.get_docstring(module):
        silent.append(f"{file}:1: the module")
    for node in module.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            silent.append(f"{file}:{node.lineno}: {node.name}")
    assert not silent, "\n".join(silent) + "\nSay in a docstring: shape, units, errors, the source of a rule."
