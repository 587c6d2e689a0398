import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.names import attribute_form, near, normalise, version_order


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("summarize", "summarize"),
        ("Text_Summarize", "text.summarize"),
        ("text-summarize", "text.summarize"),
        ("text/summarize v2", "text.summarize.v2"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("文本 摘要", "文本.摘要"),
        ("", ""),
    ],
)
def test_normalise(name: str, normal: str) -> None:
    assert normalise(name) == normal


@given(st.text())
def test_normalise_is_idempotent(name: str) -> None:
    assert normalise(normalise(name)) == normalise(name)


def test_near_puts_reordered_words_first() -> None:
    known = ["pushmessage", "push.messages", "message.push", "unrelated"]
    assert near("push.message", known)[0] == "message.push"
    assert "unrelated" not in near("push.message", known)


def test_near_keeps_the_spelling_that_was_declared_and_leaves_the_name_itself_out() -> None:
    assert near("sumarize", ["Summarize", "translate"]) == ["Summarize"]
    assert near("Summarize", ["summarize"]) == []
    assert near("x", []) == []


def test_near_is_at_most_three() -> None:
    assert len(near("summarize", [f"summarize{i}" for i in range(9)])) == 3


def test_near_stays_quick_among_many_long_names() -> None:
    known = [f"{'a' * 3000}{i}" for i in range(5_000)]
    started = time.monotonic()
    near("b" * 10_000, known)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("python", ("python", None)),
        ("python3", ("python", "3")),
        ("python-3.11", ("python", "3.11")),
        ("Python 3.11", ("python", "3.11")),
        ("python_v3", ("python", "3")),
        ("c++17", ("c++", "17")),
        ("qwen2.5-72b", ("qwen2.5-72b", None)),
        ("zh", ("zh", None)),
        ("3.11", ("3.11", None)),
        ("", ("", None)),
    ],
)
def test_attribute_form(value: str, form: tuple[str, str | None]) -> None:
    assert attribute_form(value) == form


def test_versions_compare_as_versions() -> None:
    ordered = [
        "latest",
        "0.9",
        "1.0-alpha",
        "1.0-rc1",
        "1.0-rc2",
        "1.0",
        "1.0.1",
        "1.2",
        "3.9",
        "3.11",
        "v10",
    ]
    assert sorted(set(ordered), key=version_order) == ordered
    assert version_order("3") == version_order("3.0") == version_order("v3.0.0") == version_order("3+build7")


@given(st.lists(st.text()))
def test_any_texts_can_be_sorted_as_versions(texts: list[str]) -> None:
    sorted(texts, key=version_order)
