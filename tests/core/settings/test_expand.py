"""Variables in values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.settings.expand import expand

ENV = {"A": "1", "EMPTY": "", "B": "${A}"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("$A", "$A"),
        ("${A}", "1"),
        ("x${A}y${A}z", "x1y1z"),
        ("${EMPTY}", ""),
        ("${EMPTY:-2}", "2"),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("${A:-2}", "1"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("${B}", "${A}"),  # what a variable holds is not expanded again
    ],
)
def test_expand(text: str, expanded: str) -> None:
    assert expand(text, ENV) == (expanded, [])


@pytest.mark.parametrize(
    ("text", "reference", "said"),
    [
        ("a${NONE}b", "${NONE}", "`NONE` is not set"),
        ("a${A", "${A", "never closed"),
        ("${}", "${}", "not a variable"),
        ("${1A}", "${1A}", "not a variable"),
        ("${A-b}", "${A-b}", "not a variable"),
        ("${A:?b}", "${A:?b}", "not a variable"),
        ("${A:-${B}}", "${A:-${B}", "another variable"),
    ],
)
def test_what_cannot_be_expanded(text: str, reference: str, said: str) -> None:
    _, failed = expand(text, ENV)
    assert [unexpanded.reference for unexpanded in failed] == [reference]
    assert said in failed[0].message


@given(st.text(alphabet="${}A:-$ \n", max_size=40))
def test_any_text(text: str) -> None:
    expanded, failed = expand(text, ENV)
    assert isinstance(expanded, str)
    assert all(unexpanded.reference in text for unexpanded in failed)
