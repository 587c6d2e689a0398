"""Who may import whom: always towards the left, so that each part can be read without those built on it."""

import re

import pytest
from house.source import module_name, modules, own_imports, python_files

# Each module belongs to the first line that matches it. A module imports its own rank and lower ranks only.
RANKS: tuple[tuple[int, str], ...] = (
    (0, r"reach_core(\..*)?"),
    (1, r"reach_sidecar\.policy(\..*)?|reach_control\.registry(\..*)?"),
    (1, r"reach_os(\..*)?"),
    (1, r"reach_sidecar\.config(_.*)?|reach_control\.config(_.*)?"),
    (2, r"reach_sidecar\.(http1|journal|telemetry)(\..*)?|reach_control\.(journal|telemetry)(\..*)?"),
    (2, r"reach_control\.snapshot"),
    (3, r"reach_sidecar\.(membership|forward|tasks|events)(\..*)?"),
    (3, r"reach_control\.(membership|identity|spread|nodes|bus)(\..*)?"),
    (4, r"reach_sidecar\.listen(\..*)?|reach_control\.(api|dashboard)(\..*)?"),
    (5, r"reach_sidecar\.app|reach_control\.app"),
    (6, r"reach_sidecar\.(lifecycle|reload)|reach_control\.(lifecycle|reload)"),
    (7, r"reach_cli(\..*)?"),
    (0, r"reach_sidecar|reach_control"),  # their __init__ holds a docstring only
)
PURE = re.compile(r"reach_core(\..*)?|reach_sidecar\.policy(\..*)?|reach_control\.registry(\..*)?")


def rank(module: str) -> int:
    for number, pattern in RANKS:
        if re.fullmatch(pattern, module):
            return number
    raise AssertionError(
        f"{module} has no place in the import order: put it into a package of docs/architecture.md, "
        "or give it a rank in tests/house/test_import_order.py and say why in docs/decisions.md."
    )


@pytest.mark.parametrize("file", python_files())
def test_imports_point_to_the_left(file: str) -> None:
    me = module_name(file)
    wrong = [
        f"{file}:{line}: {me} (rank {rank(me)}) imports {target} (rank {rank(target)})"
        for target, line in own_imports(file)
        if rank(target) > rank(me)
    ]
    assert not wrong, "\n".join(wrong) + (
        "\nThe order is reach_core <- policy, registry <- http1, journal, telemetry <- membership, forward "
        "<- listen, api <- app <- lifecycle <- reach_cli. Pass what is needed as a constructor argument."
    )


@pytest.mark.parametrize("file", python_files("reach_sidecar", "reach_control", "reach_core", "reach_os"))
def test_the_daemons_do_not_know_each_other(file: str) -> None:
    other = {"reach_sidecar": "reach_control", "reach_control": "reach_sidecar"}.get(file.split("/")[0])
    targets = [(target, line) for target, line in own_imports(file) if target.split(".")[0] == other]
    wrong = [f"{file}:{line}: imports {target}" for target, line in targets]
    assert not wrong, "\n".join(wrong) + "\nWhat both daemons need belongs to reach_core."


@pytest.mark.parametrize("file", [name for name in python_files() if PURE.fullmatch(module_name(name))])
def test_pure_modules_import_pure_modules(file: str) -> None:
    targets = [(target, line) for target, line in own_imports(file) if not PURE.fullmatch(target)]
    wrong = [f"{file}:{line}: imports {target}" for target, line in targets]
    assert not wrong, "\n".join(wrong) + "\nA pure module may import reach_core, policy and registry only."


def test_no_import_cycles() -> None:
    """Late imports and those behind TYPE_CHECKING count: a cycle hidden there is a cycle."""
    graph = {
        module_name(file): {target for target, _ in own_imports(file) if target in modules()} for file in python_files()
    }
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            ring = " -> ".join([*path[path.index(module) :], module])
            raise AssertionError(f"Import cycle: {ring}. Move what both need into a module of its own.")
        if module in done:
            return
        for target in sorted(graph.get(module, ())):
            if target != module:
                walk(target, [*path, module])
        done.add(module)

    for module in sorted(graph):
        walk(module, [])
