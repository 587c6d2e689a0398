"""Virtual time: one heap of events, in the order of their times and then of their making."""

import heapq
from collections.abc import Callable
from typing import Any


class Heap:
    """`now_s` moves only from event to event, so an hour takes as long as what happens in it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, when_s: float, what: Callable[..., object], *arguments: Any) -> None:
        """Call `what` then, or at once if that is past."""
        self._made += 1
        heapq.heappush(self._heap, (max(when_s, self.now_s), self._made, what, arguments))

    def after(self, wait_s: float, what: Callable[..., object], *arguments: Any) -> None:
        """Call `what` after so many seconds."""
        self.at(self.now_s + wait_s, what, *arguments)

    def run_until(self, when_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let everything happen up to then; True if `stop` said so before."""
        while self._heap and self._heap[0][0] <= when_s:
            self.now_s, _, what, arguments = heapq.heappop(self._heap)
            self.events += 1
            what(*arguments)
            if stop is not None and stop():
                return True
        self.now_s = max(self.now_s, when_s)
        return False

    def __len__(self) -> int:
        return len(self._heap)
