"""Types of settings as shapes."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from reach_core.settings.scalar import DURATION, FLAG, INTEGER, TEXT, Between, Duration, Text
from reach_core.settings.shape import (
    Derived,
    ListShape,
    MapShape,
    OneOrMany,
    ScalarShape,
    Section,
    SectionShape,
    section_shape,
)


class Inner(Section, frozen=True, kw_only=True):
    """Inside."""

    must: int


class Outer(Section, frozen=True, kw_only=True):
    """Outside."""

    wait: Annotated[Duration | None, Between(1, 2), "How long."] = None
    flag: bool = False
    word: Literal["a", "b"] = "b"
    items: list[Inner] = msgspec.field(default_factory=list)
    free: Annotated[dict[Text, Annotated[list[Text], OneOrMany]], "Anything."] = msgspec.field(default_factory=dict)
    inner: Inner | None = None
    filled: Annotated[str, Derived] = ""


def test_shapes() -> None:
    fields = section_shape(Outer).fields
    assert list(fields) == ["wait", "flag", "word", "items", "free", "inner"]
    assert fields["wait"].shape == ScalarShape(DURATION, Between(1, 2))
    assert (fields["wait"].optional, fields["wait"].text, fields["wait"].default) == (True, "How long.", None)
    assert fields["flag"].shape == ScalarShape(FLAG)
    assert isinstance(fields["word"].shape, ScalarShape)
    assert fields["word"].shape.kind.expected == "a or b"
    assert isinstance(fields["items"].shape, ListShape)
    assert fields["items"].default == []
    assert fields["free"].shape == MapShape(TEXT, ListShape(ScalarShape(TEXT), or_one=True))
    assert isinstance(fields["inner"].shape, SectionShape)
    assert fields["inner"].shape.fields["must"].required
    assert fields["inner"].shape.fields["must"].shape == ScalarShape(INTEGER)


@pytest.mark.parametrize("annotation", [int | str, bytes, Any])
def test_types_that_no_setting_has(annotation: Any) -> None:
    broken = msgspec.defstruct("Broken", [("x", annotation, None)], bases=(Section,), frozen=True, kw_only=True)
    with pytest.raises(TypeError):
        section_shape(broken)
