"""How long a repeat waits, and what `Retry-After` says."""

from datetime import UTC, datetime
from email.utils import formatdate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.backoff import backoff_s, parse_retry_after, wait_s

NOW = datetime(1994, 11, 6, 8, 49, 7, tzinfo=UTC).timestamp()
NOW_2026 = datetime(2026, 11, 6, 8, 49, 7, tzinfo=UTC).timestamp()


class Fixed(Random):
    """Draws the same number always."""

    def __new__(cls, share: float) -> "Fixed":
        return super().__new__(cls)

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def random(self) -> float:
        return self.share


@pytest.mark.parametrize(
    ("n", "least_s"),
    [(0, 0.5), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (40, 8.0), (10**9, 8.0)],
)
def test_doubles_up_to_eight_seconds(n: int, least_s: float) -> None:
    assert backoff_s(n, Fixed(0.0)) == least_s
    assert backoff_s(n, Fixed(0.5)) == least_s + 0.25
    assert backoff_s(n, Fixed(1.0)) == least_s + 0.5


def test_jitter_spreads_over_half_a_second() -> None:
    random = Random(11)
    waits = [backoff_s(0, random) for _ in range(1000)]
    assert 0.5 <= min(waits) < 0.51
    assert 0.99 < max(waits) < 1.0


@pytest.mark.parametrize(
    ("retry_after_s", "remaining_s", "wait"),
    [
        (None, 60.0, 0.75),
        (None, 0.76, 0.75),
        (None, 0.75, None),  # no time left to call in
        (None, 0.1, None),
        (None, -1.0, None),
        (0.0, 60.0, 0.25),  # shorter than the back-off: the agent knows better
        (30.0, 60.0, 30.25),
        (30.0, 30.0, None),
        (120.0, 60.0, None),
        (float("inf"), 600.0, None),
    ],
)
def test_never_past_the_deadline_and_retry_after_wins(retry_after_s: float | None, remaining_s: float, wait: float | None) -> None:
    assert wait_s(0, Fixed(0.5), retry_after_s=retry_after_s, remaining_s=remaining_s) == wait


@given(st.integers(0, 20), st.integers(), st.none() | st.floats(0.0, 1e4), st.floats(-10.0, 1e4))
def test_what_is_waited_lies_between(n: int, seed: int, retry_after_s: float | None, remaining_s: float) -> None:
    wait = wait_s(n, Random(seed), retry_after_s=retry_after_s, remaining_s=remaining_s)
    least = min(0.5 * 2**n, 8.0) if retry_after_s is None else retry_after_s
    if wait is None:
        assert remaining_s <= least + 0.5
    else:
        assert least <= wait <= least + 0.5
        assert wait < remaining_s


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"0", 0.0),
        (b"7", 7.0),
        (b" \t120 ", 120.0),
        (b"007", 7.0),
        (b"9" * 5000, float("inf")),
        (b"Sun, 06 Nov 1994 08:49:37 GMT", 30.0),
        (b"Sunday, 06-Nov-94 08:49:37 GMT", 30.0),
        (b"Sun Nov  6 08:49:37 1994", 30.0),
        (b"Wed Nov 16 08:49:07 1994", 864_000.0),
        (b"sun, 06 nov 1994 08:49:37 gmt", 30.0),
        (b"Sun, 06 Nov 1994 08:49:60 GMT", 53.0),  # a leap second
        (b"Sun, 06 Nov 1994 08:49:07 GMT", 0.0),
        (b"Sat, 05 Nov 1994 08:49:37 GMT", 0.0),  # over
        (b"Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        (b"", None),
        (b"  ", None),
        (b"-1", None),
        (b"+1", None),
        (b"1.5", None),
        (b"1e3", None),
        (b"1_000", None),
        (b"soon", None),
        (b"\xb2", None),  # a digit to some, not to RFC 9110
        (b"7, 9", None),
        (b"Sun, 31 Feb 1994 08:49:37 GMT", None),
        (b"Sun, 06 Nox 1994 08:49:37 GMT", None),
        (b"Sun, 06 Nov 1994 24:00:00 GMT", None),
        (b"Sun, 06 Nov 1994 08:49:61 GMT", None),
        (b"Sun, 06 Nov 0000 08:49:37 GMT", None),
        (b"Sun, 06 Nov 1994 08:49:37 +0100", None),
        (b"Sun, 06 Nov 1994 08:49:37 GMT and on", None),
        (b"Sun Nov 66 08:49:37 1994", None),
    ],
)  # fmt: skip
def test_retry_after(value: bytes | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("two_digits", "year"),
    [(b"26", 2026), (b"30", 2030), (b"76", 2076), (b"77", 1977), (b"94", 1994)],
)
def test_a_year_of_two_digits_is_at_most_fifty_ahead(two_digits: bytes, year: int) -> None:
    said = parse_retry_after(b"Sunday, 06-Nov-" + two_digits + b" 08:49:07 GMT", NOW_2026)
    expected = datetime(year, 11, 6, 8, 49, 7, tzinfo=UTC).timestamp() - NOW_2026
    assert said == max(expected, 0.0)


@given(st.integers(0, 4_000_000_000), st.integers(-1000, 1_000_000))
def test_dates_as_others_write_them(now: int, ahead: int) -> None:
    at = max(now + ahead, 0)
    assert parse_retry_after(formatdate(at, usegmt=True).encode(), float(now)) == max(at - now, 0)


@given(st.binary(max_size=40))
def test_nonsense_is_none_or_a_number_of_seconds(value: bytes) -> None:
    said = parse_retry_after(value, NOW)
    assert said is None or said >= 0.0
