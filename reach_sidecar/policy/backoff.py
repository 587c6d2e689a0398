"""How long to wait before a call is tried again.

500 ms · 2ⁿ, at most 8 s, plus 0–500 ms by chance, so that calls which failed together do not come back together
(design §3, "Back-off"). Where the answer said `Retry-After`, that is waited for instead, never less: the agent
knows better. Nothing is waited for that would end after the call's deadline.
"""

import re
from datetime import UTC, datetime
from random import Random

FIRST_S = 0.5
LONGEST_S = 8.0
JITTER_S = 0.5

_MONTHS = {name: number for number, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)}
# The three forms of a date that a recipient has to read (RFC 9110 §5.6.7): today's, RFC 850's, asctime's.
_DATES = tuple(re.compile(form, re.ASCII | re.IGNORECASE) for form in (
    r"[a-z]{3}, (?P<day>\d\d) (?P<month>[a-z]{3}) (?P<year>\d{4}) (?P<time>\d\d:\d\d:\d\d) GMT",
    r"[a-z]{6,9}, (?P<day>\d\d)-(?P<month>[a-z]{3})-(?P<year>\d\d) (?P<time>\d\d:\d\d:\d\d) GMT",
    r"[a-z]{3} (?P<month>[a-z]{3}) (?P<day>[ \d]\d) (?P<time>\d\d:\d\d:\d\d) (?P<year>\d{4})",
))


def backoff_s(n: int, random: Random) -> float:
    """Seconds to wait; `n` is 0 before the first repeat, 1 before the second."""
    return min(FIRST_S * 2.0 ** min(n, 10), LONGEST_S) + JITTER_S * random.random()


def wait_s(n: int, random: Random, *, retry_after_s: float | None, remaining_s: float) -> float | None:
    """Seconds to wait before repeat `n`, or None where that would leave no time before the deadline.

    Jitter comes on top of `retry_after_s` too: the agent told everybody the same.
    """
    wait = backoff_s(n, random) if retry_after_s is None else retry_after_s + JITTER_S * random.random()
    return wait if wait < remaining_s else None


def parse_retry_after(value: bytes | None, now_unix_s: float) -> float | None:
    """Seconds from now that a `Retry-After` asks for: it says seconds, or a date (RFC 9110 §10.2.3).

    0.0 for a date that is over; None where there is none, or nothing that could be read.
    """
    if value is None:
        return None
    text = value.strip(b" \t").decode("latin-1")
    if text.isascii() and text.isdigit():
        return float(text)
    for form in _DATES:
        found = form.fullmatch(text)
        if found is not None:
            at_s = _unix_s(found, now_unix_s)
            return None if at_s is None else max(at_s - now_unix_s, 0.0)
    return None


def _unix_s(date: re.Match[str], now_unix_s: float) -> float | None:
    """None for a day or an hour that does not exist."""
    month = _MONTHS.get(date["month"].lower())
    if month is None:
        return None
    hour, minute, second = (int(part) for part in date["time"].split(":"))
    leap = second == 60  # allowed by the grammar
    year = int(date["year"])
    try:
        if len(date["year"]) == 2:
            year = _whole_year(year, datetime.fromtimestamp(now_unix_s, UTC).year)
        at = datetime(year, month, int(date["day"]), hour, minute, second - leap, tzinfo=UTC)
    except ValueError:
        return None
    return at.timestamp() + leap


def _whole_year(two_digits: int, this_year: int) -> int:
    """The century is this one, unless that were over 50 years ahead (RFC 9110 §5.6.7)."""
    year = this_year - this_year % 100 + two_digits
    return year - 100 if year > this_year + 50 else year
