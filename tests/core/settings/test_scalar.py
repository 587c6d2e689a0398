"""The kinds of single values."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.settings import scalar
from reach_core.settings.scalar import Between, Scalar, one_of
from reach_core.units import format_duration

KINDS = {name: kind for name, kind in vars(scalar).items() if isinstance(kind, Scalar)}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (scalar.DURATION, "1500ms", 1.5),
        (scalar.DURATION, "1m30s", 90.0),
        (scalar.SIZE, "64KiB", 65536),
        (scalar.SIZE, "1024", 1024),
        (scalar.INTEGER, "-7", -7),
        (scalar.NUMBER, ".5", 0.5),
        (scalar.NUMBER, "2", 2.0),
        (scalar.FLAG, "True", True),
        (scalar.LISTEN, "[::1]:7070", "[::1]:7070"),
        (scalar.SERVER, "https://c:7080/", "https://c:7080"),
        (scalar.ORIGIN, "HTTPS://A.example", "https://a.example"),
        (scalar.HOST, "[::1]", "::1"),
        (scalar.HOST, "A.Example", "a.example"),
        (scalar.AGENT_ID, "planner_01.eu", "planner_01.eu"),
        (scalar.CAPABILITY, "text summarize/v2", "text summarize/v2"),
        (scalar.CAPABILITY, "übersetzen", "übersetzen"),
        (scalar.PATH, "/a?b=c", "/a?b=c"),
        (scalar.KEY_PLACE, "json:/a/0/b~1c", "json:/a/0/b~1c"),
        (scalar.KEY_PLACE, "header:X-Order", "header:X-Order"),
        (scalar.VERSION, "1.4.2-rc.1+build", "1.4.2-rc.1+build"),
    ],
)
def test_read(kind: Scalar, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (scalar.INTEGER, "1_000"),
        (scalar.INTEGER, "1e3"),
        (scalar.INTEGER, "١"),
        (scalar.NUMBER, "nan"),
        (scalar.NUMBER, "1" * 400),
        (scalar.FLAG, "yes"),
        (scalar.FLAG, ""),
        (scalar.SIZE, "1KB"),
        (scalar.SIZE, "999999999999999GiB"),
        (scalar.TEXT, ""),
        (scalar.TEXT, "\udc80"),
        (scalar.FILE, "a\x00b"),
        (scalar.CAPABILITY, "@a"),
        (scalar.CAPABILITY, "."),
        (scalar.CAPABILITY, "a\n"),
        (scalar.CAPABILITY, "a" * 129),
        (scalar.PATH, "a"),
        (scalar.PATH, "/a b"),
        (scalar.PATH, "/a#b"),
        (scalar.PATH, "/é"),
        (scalar.KEY_PLACE, "json:a"),
        (scalar.KEY_PLACE, "header:"),
        (scalar.ATTRIBUTE_VALUE, "a,b"),
        (scalar.ORIGIN, "null"),
        (scalar.PLAIN_SERVER, "http://me:hush@h:1"),
        (scalar.VERSION, "1 2"),
    ],
)
def test_refuse(kind: Scalar, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (the hint may be empty)
        kind.parse(text)


@given(st.sampled_from(sorted(KINDS)), st.text(max_size=40))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    kind = KINDS[name]
    try:
        value = kind.parse(text)
    except ValueError:
        return
    shown = str(value).lower() if isinstance(value, bool) else str(kind.render(value))
    assert kind.parse(shown) == pytest.approx(value, abs=0.001)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "pattern" in kind.schema])
@given(text=st.text(max_size=20))
def test_the_schema_allows_what_is_read(name: str, text: str) -> None:
    kind = KINDS[name]
    try:
        kind.parse(text)
    except ValueError:
        return
    assert re.search(kind.schema["pattern"], text)


def test_bounds_say_what_to_write() -> None:
    bounds = Between(1, 60)
    assert bounds.complaint(0.5, format_duration) == "at least 1s"
    assert bounds.complaint(61, format_duration) == "at most 1m"
    assert bounds.complaint(1, format_duration) is None
    assert Between(0, 1, above=True).complaint(0, format_duration) == "more than 0ms"


def test_choices_are_listed() -> None:
    assert one_of("a", "b", "c").expected == "a, b or c"
    assert one_of("a").expected == "a"


def test_another_spelling_is_read_as_the_word() -> None:
    kind = one_of("info", "warn", spellings={"warning": "warn"})
    assert [kind.parse(text) for text in ("info", "warn", "warning")] == ["info", "warn", "warn"]
    assert kind.expected == "info or warn", "the one word is what is taught"
    assert kind.schema == {"enum": ["info", "warn", "warning"]}
    with pytest.raises(ValueError, match=r"^$"):
        kind.parse("Warning")
