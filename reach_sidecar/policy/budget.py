"""How many repeats a target may cost: a fifth of its calls, and one a second where there are few calls.

A limit for each call (three attempts) does not help when every call fails: then three times the load falls on a
target that has just shown that it cannot carry it once. So repeats are counted against the calls of the last ten
seconds, in ten slots of one second, and one is granted only while all of them stay within
`0.2 · calls + 1/s · 10 s` (design §3, "When to try again").

The bound this gives, for any sequence of events, in `elapsed` seconds since the first:

    repeats <= 0.2 · calls + 1/s · elapsed + 10

Proof: take the last slot in which a repeat was granted, and the nine before it: together they hold at most
`0.2 · (their calls) + 10` repeats, or that last one had not been granted. Go on with the last granted one before
these ten slots, and so on. No call is in two of these windows, and their ends lie ten seconds apart or more, so
there are at most `1 + elapsed / 10` of them.
"""

from collections import OrderedDict

SLOTS = 10  # of one second each
CALLS_PER_REPEAT = 5  # 20 %
FREE = 10  # repeats in a window, whatever the calls: one a second
MAX_TARGETS = 1_000


class Budget:
    """The repeats of one target. `now` in the loop's seconds, never falling."""

    __slots__ = ("_calls", "_ends", "_repeats", "_slot_calls", "_slot_repeats", "_slots")

    def __init__(self) -> None:
        self._ends: float = 0.0  # of the slot that is counted in; 0.0 before the first event
        self._calls: int = 0  # in the whole window, as with _repeats
        self._repeats: int = 0
        self._slot_calls: int = 0
        self._slot_repeats: int = 0
        self._slots: list[tuple[int, int]] = []  # calls and repeats of the slots before, oldest first

    def offer(self, now: float) -> None:
        """A call is sent for the first time."""
        if now >= self._ends:
            self._turn(now)
        self._calls += 1
        self._slot_calls += 1

    def spend(self, now: float) -> bool:
        """May a call be repeated now? If so, the repeat is counted."""
        if now >= self._ends:
            self._turn(now)
        if CALLS_PER_REPEAT * (self._repeats + 1 - FREE) > self._calls:
            return False
        self._repeats += 1
        self._slot_repeats += 1
        return True

    def _turn(self, now: float) -> None:
        """Begin the slot that holds `now`; what is older than the window is forgotten."""
        if self._ends == 0.0:
            self._ends = now + 1.0
            return
        seconds = int(now - self._ends) + 1
        self._ends += seconds
        slots = [*self._slots, (self._slot_calls, self._slot_repeats), *[(0, 0)] * min(seconds - 1, SLOTS)]
        self._slots = slots[1 - SLOTS:]
        self._slot_calls = self._slot_repeats = 0
        self._calls = sum(calls for calls, _ in self._slots)
        self._repeats = sum(repeats for _, repeats in self._slots)


class Budgets:
    """By the target's name, at most 1,000: the one that was not asked for longest is dropped, and starts afresh."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: OrderedDict[str, Budget] = OrderedDict()

    def of(self, target: str) -> Budget:
        budget = self._of.get(target)
        if budget is not None:
            self._of.move_to_end(target)
            return budget
        if len(self._of) >= MAX_TARGETS:
            self._of.popitem(last=False)
        budget = self._of[target] = Budget()
        return budget
