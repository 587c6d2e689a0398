"""Fallbacks end, and a path says which capability was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.names import normalise
from reach_core.peer import Capability
from reach_sidecar.policy.match import asked_by_path, fallbacks, meant_by_path


@pytest.mark.parametrize(
    ("declared", "tried"),
    [
        ({}, []),
        ({"b": "c"}, []),
        ({"a": "b"}, ["b"]),
        ({"a": "b", "b": "c"}, ["b", "c"]),
        ({"a": "b", "b": "c", "c": "d"}, ["b", "c"]),  # twice and no further
        ({"a": "a"}, []),
        ({"a": "A"}, []),
        ({"a": "b", "b": "a"}, ["b"]),
        ({"a": "b", "b": "b"}, ["b"]),
        ({"a": "Template_Summarize", "template.summarize": "x/y z"}, ["template.summarize", "x.y.z"]),
    ],
)
def test_fallbacks(declared: dict[str, str], tried: list[str]) -> None:
    assert list(fallbacks("a", declared.get)) == tried
    assert list(fallbacks("A", declared.get)) == tried


def test_the_second_is_not_looked_up_before_it_is_wanted() -> None:
    asked: list[str] = []

    def declared(name: str) -> str | None:
        asked.append(name)
        return name + ".x"

    names = fallbacks("a", declared)
    assert asked == []
    assert next(names) == "a.x"
    assert asked == ["a"]


NAMES = st.text("aB_./", max_size=3)


@given(NAMES, st.dictionaries(NAMES, NAMES))
def test_never_in_a_circle(name: str, declared: dict[str, str]) -> None:
    tried = list(fallbacks(name, {normalise(key): value for key, value in declared.items()}.get))
    assert len(tried) <= 2
    assert len({normalise(name), *tried}) == 1 + len(tried)
    assert tried == [normalise(one) for one in tried]


def of(**paths: str) -> list[Capability]:
    return [Capability(name=name, path=path) for name, path in paths.items()]


@pytest.mark.parametrize(
    ("capabilities", "path", "name"),
    [
        (of(), "/process", None),
        (of(a="/process"), "/process", "a"),
        (of(a="/process"), "/other", "a"),
        (of(a="/a", b="/b"), "/b", "b"),
        (of(a="/a", b="/b"), "/b?x=/a", "b"),
        (of(a="/a", b="/b"), "/b/", None),
        (of(a="/a", b="/b"), "/B", None),
        (of(a="/a", b="/b"), "", None),
        (of(a="/process", b="/process"), "/process", None),
        (of(a="/process", b="/process", c="/c"), "/c?", "c"),
    ],
)
def test_asked_by_path(capabilities: list[Capability], path: str, name: str | None) -> None:
    found = asked_by_path(capabilities, path)
    assert (None if found is None else found.name) == name


@pytest.mark.parametrize(("path", "name", "dedup"), [
    (b"/a", "a", "off"), (b"/b?x=/a", "b", "memory"), (b"/c", "-", "durable"), (b"", "-", "durable"),
    (b"/\xff", "-", "durable"),
])
def test_where_the_path_does_not_tell_the_most_careful_rules_hold(path: bytes, name: str, dedup: str) -> None:
    capabilities = [Capability(name="a", path="/a", dedup="off", idempotent=True),
                    Capability(name="b", path="/b", dedup="memory"),
                    Capability(name="c1", path="/c", dedup="durable", idempotent=True),
                    Capability(name="c2", path="/c", dedup="off")]
    found = meant_by_path(capabilities, path)
    assert (found.name, found.dedup) == (name, dedup)
    assert found.idempotent is (name == "a")


@pytest.mark.parametrize(("dedups", "expected"), [
    ([], "memory"), (["off", "off"], "off"), (["off", "memory"], "memory"), (["durable", "memory"], "durable"),
])
def test_how_careful_that_is(dedups: list[str], expected: str) -> None:
    capabilities = [Capability(name=f"c{number}", path="/same", dedup=one) for number, one in enumerate(dedups)]
    assert meant_by_path(capabilities, b"/else").dedup == expected
    assert meant_by_path(capabilities[:1], b"/else").dedup == (dedups[0] if dedups else "memory"), "an only one is meant"
