"""The remaining budget of a call, as the `Reach-Timeout` header carries it.

Relative, so clocks need not agree: each hop reads what remains, spends some, and passes on the rest.
"""

from reach_core.units import parse_duration

SHORTEST_S = 0.001
LONGEST_S = 30 * 86400.0
"""As `default_timeout` at most. Whoever asks for more gets this: every hop can write and read it."""


def parse_timeout(value: bytes) -> float:
    """Seconds in a `Reach-Timeout` value (`1500ms`, `30s`), LONGEST_S at most.

    Raises ValueError with what was expected.
    """
    ms = value[:-2]
    if value.endswith(b"ms") and ms.isdigit() and 0 < len(ms) < 10 and ms != b"0":  # as sidecars write it
        return int(ms) / 1000
    seconds = parse_duration(value.decode("latin-1").strip())
    if seconds < SHORTEST_S:
        raise ValueError(f"{value.decode('latin-1')!r} is under a millisecond: no call can be made in that time")
    return min(seconds, LONGEST_S)


def format_timeout(remaining_s: float) -> bytes:
    """`remaining_s` for the next hop, in whole milliseconds, at least 1.

    The hop itself counts as a millisecond at least: clocks of event loops tick in those, and what is passed on must
    be less than what was got.
    """
    return b"%dms" % max(1, int(remaining_s * 1000) - 1)
