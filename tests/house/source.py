"""The tree as the house rules see it: which files there are, and what each imports."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("reach_core", "reach_os", "reach_sidecar", "reach_control", "reach_cli")


@cache
def committed() -> tuple[str, ...]:
    """Every file that is, or is about to be, in the repository; paths from the root with `/`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listing.returncode == 0:
        names = [name for name in listing.stdout.split("\0") if name]
    else:  # an unpacked archive has no index
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def python_files(*under: str) -> list[str]:
    """The Python files below these folders, or below the shipped packages."""
    folders = tuple(f"{folder}/" for folder in (under or PACKAGES))
    return [name for name in committed() if name.endswith(".py") and name.startswith(folders)]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)


def module_name(name: str) -> str:
    """`reach_core/table.py` is `reach_core.table`; a package goes by its folder."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def modules() -> frozenset[str]:
    return frozenset(module_name(name) for name in python_files())


def imports(name: str) -> Iterator[tuple[str, int]]:
    """(module, line) for each import in the file, wherever it stands: late and type-only ones count too."""
    package = module_name(name).split(".")
    if not name.endswith("__init__.py"):
        package = package[:-1]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                yield (whole if whole in modules() else origin), node.lineno


def own_imports(name: str) -> Iterator[tuple[str, int]]:
    """Only the imports of modules of this repository's packages."""
    for target, line in imports(name):
        if target.split(".")[0] in PACKAGES:
            yield target, line
