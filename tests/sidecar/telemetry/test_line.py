"""Log lines: whatever is in a record, it becomes one valid JSON line of bounded length."""

import re

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reach_sidecar.telemetry.line import MAX_LINE_BYTES, encode, level_rank, rfc3339


def test_time_is_rfc3339_in_utc_with_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_769_860_800_007) == "2026-01-31T12:00:00.007Z"


@pytest.mark.parametrize(("level", "rank"), [("debug", 10), ("INFO", 20), ("warn", 30), ("warning", 30), ("error", 40)])
def test_levels(level: str, rank: int) -> None:
    assert level_rank(level) == rank


def test_an_unknown_level_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'loud' is not a level: use one of debug, info, warn, error"):
        level_rank("loud")


values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just(object()),
    st.text(st.characters(categories=["Cs"])), st.lists(st.text()), st.just("x" * 9000),
)  # fmt: skip


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=20), values, max_size=8))
def test_anything_becomes_one_json_line(record: dict[str, object]) -> None:
    data = encode(record)
    assert isinstance(orjson.loads(data), dict)
    assert b"\n" not in data
    assert len(data) <= MAX_LINE_BYTES


def test_long_text_is_shortened_and_says_so() -> None:
    shortened = orjson.loads(encode({"event": "call", "detail": "x" * 50_000}))
    assert shortened["event"] == "call"
    assert re.fullmatch(r"x{256}… \(50000 characters\)", shortened["detail"])
