"""What decides must not do: the vocabulary, the policies and the registry know no clock, no chance, no I/O.

`now` and the random generator are arguments. So every decision can be replayed, and a simulator runs an hour
of failures in a second.
"""

import ast

import pytest
from house.source import imports, python_files, tree

PURE = ("reach_core", "reach_sidecar/policy", "reach_control/registry")

STANDARD = """
__future__ abc base64 binascii bisect collections contextlib copy dataclasses datetime difflib enum fractions
functools hashlib heapq hmac ipaddress itertools json math operator re statistics string struct textwrap types
typing unicodedata urllib.parse zlib
"""
PURE_MODULES = {*STANDARD.split(), "cryptography", "msgspec", "orjson"}
# YAML text becomes typed values here; the text itself comes in as an argument.
YAML_READERS = "reach_core/settings"
PURE_NEIGHBOURS = ("reach_core", "reach_sidecar.policy", "reach_control.registry")

IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
IMPURE_NAMES = {"Random", "SystemRandom", "choice", "randint", "randrange", "sample", "shuffle", "uniform"}
CLOCKS = {"now", "utcnow", "today"}


def is_pure_import(module: str, file: str) -> bool:
    if module.startswith(PURE_NEIGHBOURS):
        return True
    if module == "yaml" or module.startswith("yaml."):
        return file.startswith(YAML_READERS)
    return module in PURE_MODULES or module.split(".")[0] in PURE_MODULES


@pytest.mark.parametrize("file", python_files(*PURE))
def test_imports_are_pure(file: str) -> None:
    # `random.Random` only lends the type of an argument: making one is found by the next test.
    wrong = [
        f"{file}:{line}: imports {module}"
        for module, line in imports(file)
        if module not in ("random", "random.Random") and not is_pure_import(module, file)
    ]
    assert not wrong, (
        "\n".join(wrong) + "\nThis file must stay pure: take `now`, the random generator or the bytes as "
        "an argument, or move what touches the world to a package that may (membership, forward, api)."
    )


@pytest.mark.parametrize("file", python_files(*PURE))
def test_nothing_reads_the_clock_or_the_world(file: str) -> None:
    wrong = []
    has_random = any(isinstance(n, ast.Import) and "random" in [a.name for a in n.names] for n in ast.walk(tree(file)))
    for node in ast.walk(tree(file)):
        if not isinstance(node, ast.Call):
            continue
        if has_random and ast.unparse(node.func).startswith("random."):
            wrong.append(f"{file}:{node.lineno}: calls {ast.unparse(node.func)}()")
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS | IMPURE_NAMES:
            wrong.append(f"{file}:{node.lineno}: calls {node.func.id}()")
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in CLOCKS
            and ast.unparse(node.func.value) in {"datetime", "date", "datetime.datetime", "datetime.date"}
        ):
            wrong.append(f"{file}:{node.lineno}: reads the clock with {ast.unparse(node.func)}()")
    assert not wrong, "\n".join(wrong) + "\nThis file must stay pure: take the value as an argument."
