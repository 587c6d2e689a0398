"""Anything that runs: it can be killed, stopped for a while, and have a wrong clock."""

from collections.abc import Callable
from typing import Any

from sim.heap import Heap

BASE_MS = 1_700_000_000_000


class Node:
    """`alive`: the process runs, or is stopped. While it is stopped what happens to it waits, and then all of it comes
    at once, as after SIGCONT."""

    def __init__(self, heap: Heap, name: str, address: str) -> None:
        self.heap = heap
        self.name = name
        self.address = address
        self.alive = True
        self.skew_ms = 0
        self.datagrams_out = 0
        self.bytes_out = 0
        self.under_way = 0
        self.most_under_way = 0
        self._is_stopped = False
        self._waiting: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    @property
    def now_s(self) -> float:
        return self.heap.now_s

    @property
    def now_ms(self) -> int:
        """What its wall clock says."""
        return BASE_MS + int(self.heap.now_s * 1000) + self.skew_ms

    def soon(self, what: Callable[..., object], *arguments: Any) -> None:
        """Something happens to the process now."""
        if not self.alive:
            return
        if self._is_stopped:
            self._waiting.append((what, arguments))
        else:
            what(*arguments)

    def after(self, wait_s: float, what: Callable[..., object], *arguments: Any) -> None:
        """A timer of the process."""
        self.heap.after(wait_s, self.soon, what, *arguments)

    def stop(self) -> None:
        """SIGSTOP."""
        self._is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self._is_stopped = False
        waiting, self._waiting = self._waiting, []
        for what, arguments in waiting:
            if self.alive:
                what(*arguments)

    def kill(self) -> None:
        """SIGKILL: nothing of the process happens any more."""
        self.alive = False
        self._waiting.clear()

    def served(self) -> None:
        self.under_way -= 1

    def received(self, what: Any, source: str) -> None:
        """A datagram came."""
        raise AssertionError("nobody sends datagrams to this node")
