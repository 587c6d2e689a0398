"""`Reach-Timeout`: read from the caller, lowered, and passed on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.deadline import format_timeout, parse_timeout


@pytest.mark.parametrize(("value", "seconds"), [(b"1500ms", 1.5), (b" 30s ", 30), (b"1ms", 0.001), (b"1m30s", 90)])
def test_reading(value: bytes, seconds: float) -> None:
    assert parse_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"30", b"soon", b"-1s", b"\xff", b"30s, 40s"])
def test_what_is_no_duration_says_so(value: bytes) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_timeout(value)


@pytest.mark.parametrize("value", [b"0s", b"0.5ms"])
def test_no_time_at_all_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="under a millisecond"):
        parse_timeout(value)


@given(st.floats(0, 10**6))
def test_the_next_hop_never_gets_more(remaining_s: float) -> None:
    """Except where under a millisecond is left: that is rounded up, for zero cannot be said."""
    assert parse_timeout(format_timeout(remaining_s)) <= max(remaining_s, 0.001) + 1e-9


@given(st.integers(2, 10**9), st.floats(0, 10**5))
def test_each_hop_gets_less_than_the_one_before(ms: int, now: float) -> None:
    """Also when the clock did not tick between the two."""
    deadline = now + parse_timeout(b"%dms" % ms)
    assert parse_timeout(format_timeout(deadline - now)) <= (ms - 1) / 1000


def test_a_budget_that_is_over_is_a_millisecond() -> None:
    assert format_timeout(-5) == b"1ms"


@pytest.mark.parametrize("value", [b"30d", b"20000d", b"999999999999d", b"2592000000ms", b"999999999999ms"])
def test_what_one_hop_takes_the_next_one_takes_too(value: bytes) -> None:
    seconds = parse_timeout(value)
    assert seconds == 30 * 86400.0
    assert parse_timeout(format_timeout(seconds)) == pytest.approx(seconds, abs=0.002)
