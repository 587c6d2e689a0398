"""The modules that can be built as C stay such that they can: compiled.txt says what they have to keep to.

Only the cheap half of the proof. `make compiled` compiles them, `make compiled-test` runs the result.
"""

import ast
from collections.abc import Iterator

import pytest
from house.source import ROOT, module_name, python_files, tree

MODULES = [
    line for line in (ROOT / "compiled.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
]
# In the packages that calls run through: what not every call needs. A new file there belongs here or in the list.
NOT_HOT = {
    "reach_sidecar/forward/egress.py": "for hosts outside the mesh",
    "reach_sidecar/forward/given_key.py": "for capabilities that say where a key stands",
    "reach_sidecar/forward/pinned.py": "for durable calls, which wait for the disk",
    "reach_sidecar/forward/route.py": "for hosts outside the mesh",
    "reach_sidecar/forward/stack.py": "wires the steps at the start",
    "reach_sidecar/forward/stores.py": "opens the stores",
    "reach_sidecar/forward/verdict.py": "for calls that failed",
    "reach_sidecar/http1/listener.py": "once for each connection",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPILED = {module_name(name) for name in MODULES}
# What a class in C may derive from although it is not compiled: mypyc knows these itself.
BUILTINS = {"object", "BaseException", "Exception", "ValueError", "LookupError", "IndexError", "UserWarning", "dict"}
ORIGINS = COMPILED | {"typing", "enum"}


def functions(node: ast.AST, inside_class: bool = False) -> Iterator[tuple[Function, bool]]:
    """Every function below `node`, and whether it is a method."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, inside_class
        yield from functions(child, isinstance(child, ast.ClassDef))


def origins(file: str) -> dict[str, str]:
    """Where each name that the file takes from another one of ours comes from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
    return found


def test_the_list_is_one_of_files_each_once() -> None:
    assert len(MODULES) == len(set(MODULES))
    missing = sorted(set(MODULES) - set(python_files()))
    assert not missing, f"{missing}: gone or renamed; correct compiled.txt."


def test_no_file_on_the_path_of_a_call_is_forgotten() -> None:
    path = {name for name in python_files("reach_sidecar/http1", "reach_sidecar/forward") if "__init__" not in name}
    forgotten = sorted(path - set(MODULES) - set(NOT_HOT))
    assert not forgotten, f"{forgotten}: add it to compiled.txt, or to NOT_HOT with its reason."
    assert not set(NOT_HOT) & set(MODULES)


@pytest.mark.parametrize("file", MODULES)
def test_functions_are_annotated_in_full(file: str) -> None:
    bare = []
    for function, is_method in functions(tree(file)):
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args]
        decorated = {ast.unparse(one) for one in function.decorator_list}
        named = named[1:] if is_method and "staticmethod" not in decorated else named
        every = [*named, *arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]
        bare += [f"{file}:{one.lineno}: {one.arg} of {function.name}" for one in every if one.annotation is None]
        if function.returns is None:
            bare.append(f"{file}:{function.lineno}: what {function.name} returns")
    assert not bare, "\n".join(bare) + "\nWhat has no type is slow in the compiled build: annotate it."


@pytest.mark.parametrize("file", MODULES)
def test_classes_derive_from_nothing_that_is_not_compiled(file: str) -> None:
    known = BUILTINS | {node.name for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)}
    taken = origins(file)
    wrong = []
    for node in ast.walk(tree(file)):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0]
            if name not in known and taken.get(name) not in ORIGINS:
                wrong.append(f"{file}:{node.lineno}: {node.name}({name})")
    assert not wrong, "\n".join(wrong) + (
        "\nA class in C cannot derive from one of Python's. Offer the same methods without deriving "
        "(an asyncio.Protocol needs no more), or compile the base too: compiled.txt."
    )


@pytest.mark.parametrize("file", MODULES)
def test_no_lambda_with_any_number_of_arguments(file: str) -> None:
    wrong = [
        f"{file}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Lambda) and (node.args.vararg or node.args.kwarg)
    ]
    assert not wrong, "\n".join(wrong) + "\nmypyc cannot compile these: name each argument."
