"""`${NAME}` and `${NAME:-default}` inside a value; `$${` stands for a plain `${`.

Values are expanded one by one after the YAML was parsed, so what a variable holds can never add a key or a line.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


class Unexpanded(NamedTuple):
    """A reference that could not be replaced: its own text (to find its place by), and why."""

    reference: str
    message: str


def expand(text: str, env: Mapping[str, str]) -> tuple[str, list[Unexpanded]]:
    """`text` with every reference replaced, and those that could not be.

    A default also stands in for a variable that is set but empty, as in a shell.
    """
    if "${" not in text:
        return text, []
    failed: list[Unexpanded] = []

    def replace(match: re.Match[str]) -> str:
        reference = match[0]
        if reference == "$${":
            return "${"
        if not match["end"]:
            failed.append(Unexpanded(reference, "`${` is never closed: write ${NAME} or ${NAME:-default}"))
            return ""
        body = _BODY.fullmatch(match["body"])
        if body is None:
            failed.append(
                Unexpanded(reference, f"`{reference[:60]}` is not a variable: write ${{NAME}} or ${{NAME:-default}}")
            )
            return ""
        name, default = body["name"], body["default"]
        if default is not None and "${" in default:
            failed.append(
                Unexpanded(reference, f"the default of `{name}` holds another variable: that is not expanded")
            )
            return ""
        value = env.get(name, "")
        if value or (default is None and name in env):
            return value
        if default is None:
            why = f"the environment variable `{name}` is not set: set it, or write ${{{name}:-default}}"
            failed.append(Unexpanded(reference, why))
            return ""
        return default[2:]

    return _REFERENCE.sub(replace, text), failed
