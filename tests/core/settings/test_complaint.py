"""What is said about a mistake."""

import pytest

from reach_core.settings.complaint import Complaint, ConfigError, nearest, quoted


def test_complaints_are_sorted_and_each_said_once() -> None:
    a, b, c = Complaint("f", 2, 1, "x"), Complaint("f", 10, 1, "y"), Complaint("f", 2, 3, "z")
    error = ConfigError([b, c, a, b])
    assert error.complaints == [a, c, b]
    assert str(error) == "f:2:1: x\nf:2:3: z\nf:10:1: y"


def test_a_complaint_about_the_whole_file_has_no_place() -> None:
    assert str(Complaint("f", 0, 0, "gone")) == "f: gone"


@pytest.mark.parametrize(
    ("word", "known"),
    [("capabilites", "capabilities"), ("Max-Concurrency", "max_concurrency"), ("maxConcurrency", "max_concurrency"), ("zzz", None), ("", None)],
)  # fmt: skip
def test_the_nearest_key(word: str, known: str | None) -> None:
    assert nearest(word, ["capabilities", "max_concurrency", "id"]) == known


def test_values_are_quoted_on_one_short_line_without_passwords() -> None:
    assert quoted("a\nb\x1b[0m") == "`a\\nb\\x1b[0m`"
    assert len(quoted("x" * 1000)) < 80
    assert quoted("http://me:hush@host/") == "`http://***@host/`"
