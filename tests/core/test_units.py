"""Durations and sizes: what is read, what is refused with the reason, and that writing and reading agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500ms", 1.5), ("30s", 30), ("10m", 600), ("24h", 86400), ("2d", 172800), ("1m30s", 90), ("0.5s", 0.5), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "-1s", "1 s", "30S", "1m 30s", "1e3s", "∞s", "١s", "1.s", "9" * 20 + "s", "1s\n"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number and ms, s, m, h or d"):
        parse_duration(text)


@given(st.integers(0, 10**12))
def test_durations_come_back(ms: int) -> None:
    assert round(parse_duration(format_duration(ms / 1000)) * 1000) == ms


def test_durations_are_written_short() -> None:
    assert [format_duration(s) for s in (0, 0.25, 1.5, 30, 90, 600, 86400)] == [
        "0ms", "250ms", "1500ms", "30s", "90s", "10m", "24h",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("7B", 7), ("64KiB", 65536), ("256MiB", 1 << 28), ("1GiB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "64KB", "64kib", "-1", "1.5MiB", "1 MiB", "١KiB", "9" * 20])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write a whole number"):
        parse_size(text)


@given(st.integers(0, 1 << 48))
def test_sizes_come_back(size: int) -> None:
    assert parse_size(format_size(size)) == size
