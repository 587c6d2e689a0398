"""`Reach-Require` and `Reach-Prefer`: attributes that must, or should, match.

    language=python, version>=3.11

Terms are separated by commas and all of them count. `name=value` and `name!=value` compare text without case,
`>=`, `<=`, `>` and `<` compare as versions (3.9 < 3.11, 1.0rc1 < 1.0), a bare `name` asks only that the
attribute is declared. A value with a comma stands in double quotes. An agent may declare several values for
an attribute: one that fits is enough, and `!=` wants none of them.

`python3` and `python-3.11` are language `python`, version `3` and `3.11` (design, "Matching"), on both sides.
A version that is asked for with `=` counts as far as it goes: 3.11 meets `version=3`, and not `version=3.1`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from reach_core.names import attribute_form, version_order

Attributes = Mapping[str, Sequence[str]]

PATTERN = (
    r'^([ \t]*[A-Za-z][A-Za-z0-9_.-]*([ \t]*(>=|<=|!=|==|=|>|<)[ \t]*("[^"]+"|[^,"\s]([^,"]*[^,"\s])?))?[ \t]*'
    r"(,|$))*[ \t]*$"
)
"""The same grammar for the API's description, where `^` and `$` are those of ECMAScript."""
_TERM = re.compile(
    r"[ \t]*([A-Za-z][A-Za-z0-9_.-]*)"
    r'(?:[ \t]*(>=|<=|!=|==|=|>|<)[ \t]*("[^"]+"|[^,"\s](?:[^,"]*[^,"\s])?))?[ \t]*(?:,|\Z)'
)
_VERSION = re.compile(r"v?\d[\w.+-]*")

MAX_LENGTH = 2048
"""Characters of a requirement: more is a mistake, or meant to keep the loop busy."""


class Requirement(NamedTuple):
    """One term. `operator` is one of `= != >= <= > <`, or "" where only the name was given."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.value}"


@lru_cache(maxsize=512)
def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """The terms of `text`; none for an empty one. Raises ValueError, showing how to write it."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{len(text)} characters of attributes are required: at most {MAX_LENGTH} are read")
    found: list[Requirement] = []
    position = 0
    while text[position:].strip(" \t"):
        term = _TERM.match(text, position)
        if term is None:
            raise ValueError(
                f"{text[position:].strip()!r} is not an attribute that can be required: "
                "write terms such as language=python, version>=3.11"
            )
        operator = "=" if term[2] == "==" else term[2] or ""
        found += _split(Requirement(term[1].lower(), operator, (term[3] or "").strip('"').strip().lower()))
        position = term.end()
    return tuple(found)


def first_unmet(requirements: Sequence[Requirement], attributes: Attributes) -> Requirement | None:
    """The first requirement that `attributes` do not meet, or None when they meet all."""
    declared = _declared(attributes) if requirements else {}
    return next((one for one in requirements if not _met(one, declared)), None)


def share_met(requirements: Sequence[Requirement], attributes: Attributes) -> float:
    """How much of a preference is met, 0…1; 0 where nothing was preferred."""
    if not requirements:
        return 0.0
    declared = _declared(attributes)
    return sum(_met(one, declared) for one in requirements) / len(requirements)


def _split(one: Requirement) -> list[Requirement]:
    """`language=python3` asks for language `python` and version `3`."""
    if one.name == "language" and one.operator == "=":
        language, version = attribute_form(one.value)
        if version is not None:
            return [Requirement("language", "=", language), Requirement("version", "=", version)]
    return [one]


def _declared(attributes: Attributes) -> dict[str, list[str]]:
    declared = {name.lower(): [value.lower() for value in values] for name, values in attributes.items()}
    if "language" in declared:
        forms = [attribute_form(value) for value in declared["language"]]
        declared["language"] = [language for language, _ in forms]
        if versions := [version for _, version in forms if version is not None]:
            declared.setdefault("version", versions)
    return declared


def _met(one: Requirement, declared: dict[str, list[str]]) -> bool:
    values = declared.get(one.name)
    if values is None:
        return one.operator == "!="
    if not one.operator:
        return True
    if one.operator in ("=", "!="):
        return any(_equal(one, value) for value in values) == (one.operator == "=")
    return any(_in_order(one, value) for value in values)


def _equal(one: Requirement, value: str) -> bool:
    if value == one.value:
        return True
    if not one.name.endswith("version") or not (_VERSION.fullmatch(one.value) and _VERSION.fullmatch(value)):
        return False
    asked, has = one.value.removeprefix("v").split("."), value.removeprefix("v").split(".")
    return has[: len(asked)] == asked or version_order(one.value) == version_order(value)


def _in_order(one: Requirement, value: str) -> bool:
    if not (_VERSION.fullmatch(one.value) and _VERSION.fullmatch(value)):
        return False
    asked, has = version_order(one.value), version_order(value)
    return {">": has > asked, ">=": has >= asked, "<": has < asked, "<=": has <= asked}[one.operator]
