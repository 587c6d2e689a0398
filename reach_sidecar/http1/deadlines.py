"""When exchanges run out of time: one timer for all of a pool's, set to the earliest deadline.

A timer per exchange costs one and a half microseconds, and almost none of them ever fires. So the timer is only
moved when an earlier deadline comes in; when it fires it ends what is due, and looks for the next earliest.
"""

import asyncio
from collections.abc import Callable


class Deadlines:
    """Deadlines are loop seconds. `add` returns the number by which to `remove`."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[float, Callable[[], None]]] = {}
        self._count = 0
        self._armed = 0.0  # the loop time the timer is set to, 0: there is none
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._live)

    def add(self, loop: asyncio.AbstractEventLoop, deadline: float, expire: Callable[[], None]) -> int:
        """Call `expire` at `deadline`, unless it is removed before."""
        self._count += 1
        self._live[self._count] = (deadline, expire)
        if self._timer is None or deadline < self._armed:
            self._arm(loop, deadline)
        return self._count

    def remove(self, number: int) -> None:
        self._live.pop(number, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        self._timer = loop.call_at(deadline, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        due = [number for number, (deadline, _) in self._live.items() if deadline <= now]
        for number in due:
            entry = self._live.pop(number, None)
            if entry is not None:  # one that ended may have taken others with it
                entry[1]()
        if self._live:
            self._arm(loop, min(deadline for deadline, _ in self._live.values()))
