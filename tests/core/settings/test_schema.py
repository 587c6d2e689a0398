"""The JSON Schema is made from the types that read the file."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from jsonschema import Draft202012Validator

from reach_core.settings.scalar import Between, Duration, Size, Text
from reach_core.settings.schema import DIALECT, json_schema
from reach_core.settings.shape import OneOrMany, Section


class Part(Section, frozen=True, kw_only=True):
    """A part
    of it."""

    name: Annotated[Text, "Its name."]


class Whole(Section, frozen=True, kw_only=True):
    """The whole."""

    wait: Annotated[Duration, "How long."] = 90.0
    room: Size = 65536
    count: Annotated[int, Between(1, 9)] = 3
    mode: Literal["a", "b"] = "a"
    parts: list[Part] = msgspec.field(default_factory=list)
    tags: dict[Text, Annotated[list[Text], OneOrMany]] = msgspec.field(default_factory=dict)
    one: Part | None = None


SCHEMA = json_schema(Whole, "whole.yaml")


def test_it_is_a_schema_with_descriptions_and_defaults_as_they_are_written() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == DIALECT
    assert (SCHEMA["title"], SCHEMA["description"]) == ("whole.yaml", "The whole.")
    assert SCHEMA["properties"]["wait"]["description"] == "How long."
    assert SCHEMA["properties"]["wait"]["default"] == "90s"
    assert SCHEMA["properties"]["room"]["default"] == "64KiB"
    assert SCHEMA["properties"]["one"]["default"] is None
    assert SCHEMA["$defs"]["Part"]["description"] == "A part of it."
    assert SCHEMA["$defs"]["Part"]["required"] == ["name"]
    assert SCHEMA["$defs"]["Part"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("document", "fits"),
    [
        ({}, True),
        ({"wait": "1m30s", "room": 1024, "count": 9, "mode": "b", "parts": [{"name": "x"}], "tags": {"a": 1}}, True),
        ({"wait": "${WAIT}", "count": "${N:-3}", "parts": None, "one": None, "tags": {"a": ["b", "c"]}}, True),
        ({"wait": 30}, False),
        ({"wait": "30"}, False),
        ({"room": "1MB"}, False),
        ({"count": 0}, False),
        ({"count": "3"}, False),
        ({"mode": "c"}, False),
        ({"parts": [{}]}, False),
        ({"parts": {"name": "x"}}, False),
        ({"zzz": 1}, False),
        ([], False),
    ],
)
def test_it_fits_what_the_reader_takes(document: Any, fits: bool) -> None:
    assert Draft202012Validator(SCHEMA).is_valid(document) is fits
