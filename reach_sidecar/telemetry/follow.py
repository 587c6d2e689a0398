"""Live log lines for those who follow, after the stored ones and without a gap between them.

Every line has a number (`seq`), given when its batch is written. A follower registers first and queries the store
second; a line written in between is in both, and its number tells. So each line comes exactly once.
A follower that does not keep up loses lines and is told how many: nobody else waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from reach_sidecar.telemetry.line import Line

MAX_WAITING_LINES = 2000


class Followed(NamedTuple):
    """A line and its number; or, with `missed` > 0, a gap of that many lines."""

    seq: int
    data: bytes
    missed: int = 0


class Follower:
    """Lines of one trace (or all) from one level up, as they are written. Belongs to the running loop."""

    def __init__(self, hub: "Followers", trace_id: str | None, rank: int) -> None:
        self.trace_id = trace_id
        self.rank = rank
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Followed] = deque()
        self._missed = 0
        self._woken = asyncio.Event()
        self._closed = False

    def offer(self, first: int, batch: Sequence[Line]) -> None:
        """From the log's thread: take over the lines that are wanted."""
        wanted = [
            Followed(first + place, line[3])
            for place, line in enumerate(batch)
            if line[1] >= self.rank and (self.trace_id is None or line[2] == self.trace_id)
        ]
        if wanted:
            self._on_loop(wanted)

    def end(self) -> None:
        """From any thread: no more lines."""
        self._on_loop(None)

    def _on_loop(self, lines: list[Followed] | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, lines)
        except RuntimeError:  # the loop is closed
            pass

    def _take(self, lines: list[Followed] | None) -> None:
        if lines is None:
            self._closed = True
        else:
            room = MAX_WAITING_LINES - len(self._waiting)
            self._waiting.extend(lines[: max(room, 0)])
            self._missed += max(len(lines) - max(room, 0), 0)
        self._woken.set()

    async def next(self, timeout_s: float) -> list[Followed] | None:
        """What has come: [] when nothing did in `timeout_s`, None when the log is closed."""
        if not self._waiting and not self._closed:
            try:
                await asyncio.wait_for(self._woken.wait(), timeout_s)
            except TimeoutError:
                return []
        self._woken.clear()
        lines = list(self._waiting)
        self._waiting.clear()
        if self._missed:
            lines.append(Followed(-1, b"", self._missed))
            self._missed = 0
        return lines or (None if self._closed else [])

    def close(self) -> None:
        self._hub.remove(self)


class Followers:
    """Who follows. The log's thread publishes; the list is replaced, never changed, so no lock is held."""

    def __init__(self) -> None:
        self.next_seq = 1
        self._all: tuple[Follower, ...] = ()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, trace_id: str | None, rank: int) -> Follower:
        follower = Follower(self, trace_id, rank)
        self._all = (*self._all, follower)
        return follower

    def remove(self, follower: Follower) -> None:
        self._all = tuple([other for other in self._all if other is not follower])

    def publish(self, first: int, batch: Sequence[Line]) -> None:
        self.next_seq = first + len(batch)
        for follower in self._all:
            follower.offer(first, batch)

    def close(self) -> None:
        for follower in self._all:
            follower.end()
