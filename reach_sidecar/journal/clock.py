"""The journal's own clock, which clocks of the machine that jump can neither stop nor hurry.

Rows live for hours and over restarts, so a monotonic clock alone cannot say their age; and the time of day jumps. So
the file keeps a time of its own. It starts as the time of day when the file was made. While the process runs it moves
with the monotonic clock. Over a restart it moves by what the time of day says has passed, counted from the latest time
of day ever seen, and never backwards:

- The clock is set while the process runs, either way: no row notices.
- The clock is behind at the next start: the time away does not count. Rows live longer by that much, not for ever,
  because running still counts. So it is too with a machine without a battery, which starts in 1970: that start does
  not count, and neither does the jump to the present.
- The clock is far ahead at the next start: this cannot be told from having been away for so long, and old rows go.

Suspended time does not count where the monotonic clock does not count it. All errors but the last keep rows longer.
"""


class JournalClock:
    """`noted_ms`, `wall_ms`: as `note` returned them last. `now_ms`: the time of day. `monotonic_s`: any zero."""

    __slots__ = ("_start_ms", "_started_s", "_wall_ms")

    def __init__(self, noted_ms: int, wall_ms: int, *, now_ms: int, monotonic_s: float) -> None:
        self._start_ms = noted_ms + max(0, now_ms - wall_ms)
        self._started_s = monotonic_s
        self._wall_ms = max(wall_ms, now_ms)

    def time_ms(self, monotonic_s: float) -> int:
        return self._start_ms + int((monotonic_s - self._started_s) * 1000)

    def note(self, now_ms: int, monotonic_s: float) -> tuple[int, int]:
        """What to keep: this clock's time and the latest time of day seen. Once a minute or so: what the time of day
        jumps ahead after the last note, and before a crash, counts as time away.
        """
        self._wall_ms = max(self._wall_ms, now_ms)
        return self.time_ms(monotonic_s), self._wall_ms
