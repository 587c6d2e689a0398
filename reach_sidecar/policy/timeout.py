"""How long a call may run, and whether what is left of its time can be enough.

The called side ends an execution after the capability's `timeout`, and never after the call's own deadline. With
`adaptive: true` it learns a tighter bound: 1.5 times what 95 of 100 of the last calls took. A call that was cut off
took longer than was measured, so it counts twice; once more than a few are cut off, p95 is the bound itself, the next
one is half as much again, and the bound so grows until the calls fit again (design §3, "Timeouts").

The calling side remembers the shortest answer of a capability lately. A call that has less time left than that would
only cost an agent work whose answer nobody waits for, so it fails at once (`deadline_too_short`). What it remembers
it forgets within a minute: where every call is refused for this reason no answers come that could correct it.
"""

WINDOW = 200  # durations that p95 is taken from
ENOUGH = 20  # with fewer, p95 is the largest of them: no ground for a bound
FACTOR = 1.5
# A bound under this would cut calls off for a pause of the interpreter or the machine, not for their own slowness.
ADAPTIVE_AT_LEAST_S = 0.1
ADAPTIVE_AT_MOST_S = 600.0  # the guard that every call has anyway; a `timeout` that is declared lies under it

SHORTEST_SPAN_S = 30.0  # a minimum is that of this span and the one before: it is forgotten after 30 to 60 s
SHORTEST_NEEDS = 3  # answers; one alone may have been a fluke


class Durations:
    """How long the last calls of one capability ran, in seconds; each that timed out counts as two."""

    __slots__ = ("_at", "_news", "_p95", "_ring")

    def __init__(self) -> None:
        self._ring: list[float] = []
        self._at = 0  # the oldest, once the ring is full
        self._news = 0  # added since p95 was last worked out
        self._p95 = 0.0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, seconds: float, *, timed_out: bool) -> None:
        self._put(seconds)
        if timed_out:
            self._put(seconds)

    def _put(self, seconds: float) -> None:
        self._news += 1
        ring = self._ring
        if len(ring) < WINDOW:
            ring.append(seconds)
            return
        at = self._at
        ring[at] = seconds
        self._at = at + 1 if at + 1 < WINDOW else 0

    @property
    def p95(self) -> float:
        """What 95 of 100 took at most, in seconds; 0.0 while there are none.

        Sorted anew only when a fifth of them is new, so that it may be asked for every call.
        """
        if self._news and self._news * 5 >= len(self._ring):
            ordered = sorted(self._ring)
            self._p95 = ordered[-(-len(ordered) * 95 // 100) - 1]
            self._news = 0
        return self._p95


def adaptive_s(durations: Durations) -> float | None:
    """The bound that these durations suggest, in seconds; None while they are too few to tell."""
    if len(durations) < ENOUGH:
        return None
    return min(max(FACTOR * durations.p95, ADAPTIVE_AT_LEAST_S), ADAPTIVE_AT_MOST_S)


def execution_s(declared_s: float | None, remaining_s: float, adaptive_s: float | None) -> float:
    """How long the agent may take, in seconds, 0.0 and up: the least of what is known.

    `declared_s`: the capability's `timeout`. `remaining_s`: of the call's own time. `adaptive_s`: as above, None
    where the capability is not adaptive or it is not known yet.
    """
    bound = remaining_s
    if declared_s is not None and declared_s < bound:
        bound = declared_s
    if adaptive_s is not None and adaptive_s < bound:
        bound = adaptive_s
    return bound if bound > 0.0 else 0.0


class Shortest:
    """The shortest answer of one capability within the last 30 to 60 s, as the caller saw it.

    Two spans of time, each with its minimum and its number of answers: the one that runs, and the one before.
    `now` is monotonic, in seconds.
    """

    __slots__ = ("_before", "_before_count", "_count", "_least", "_until")

    def __init__(self) -> None:
        self._until = 0.0  # when the running span ends
        self._least = self._before = 0.0
        self._count = self._before_count = 0

    def note(self, seconds: float, now: float) -> None:
        """An answer came after `seconds`. Not for what the called sidecar itself said: that is no answer of work."""
        if now >= self._until:
            self._turn(now)
        if self._count == 0 or seconds < self._least:
            self._least = seconds
        self._count += 1

    def at(self, now: float) -> float:
        """The least time in which an answer may come, in seconds; 0.0 while too few came lately to tell."""
        if now >= self._until:
            self._turn(now)
        if self._count + self._before_count < SHORTEST_NEEDS:
            return 0.0
        if self._count == 0:
            return self._before
        if self._before_count == 0:
            return self._least
        return min(self._least, self._before)

    def _turn(self, now: float) -> None:
        """The running span is over: it becomes the one before, or is forgotten where a whole span passed since."""
        if now < self._until + SHORTEST_SPAN_S:
            self._before, self._before_count = self._least, self._count
            self._until += SHORTEST_SPAN_S
        else:
            self._before_count = 0
            self._until = now + SHORTEST_SPAN_S
        self._count = 0
