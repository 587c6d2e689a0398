"""The table for sidecars: what changed since they last asked, at once or as soon as there is something.

Only what is on disk is shown (`visible`), so a node that is killed and starts again never knows less than it
told others. All who wait are woken by one event, and an answer is encoded once for all who ask from the same
place. The `epoch` is new with each start: a sequence number of a former process means nothing here, and such
a reader gets the whole table.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from reach_core.messages import encode_table
from reach_core.problem import Problem
from reach_core.table import PeerTable

MAX_WAIT_S = 60.0
FULL_WAIT_S = 1.0
MOST_WHOLE = 16
WHOLE_WAIT_S = 5.0
"""After a start all ask for the whole table: so many get it at a time, the others wait so long and then come again."""


class Feed:
    """`waiting` counts the readers that wait now. `aliases` go with each whole table, the version of what else holds
    mesh-wide (`info`) with every answer.
    """

    def __init__(self, table: PeerTable, epoch: str, aliases: Mapping[str, list[str]]) -> None:
        self.epoch = epoch
        self.visible = table.seq
        self.waiting = 0
        self.info = 0
        self._table = table
        self._aliases = dict(aliases)
        self._news = asyncio.Event()
        self._closed = False
        self._places = asyncio.Semaphore(MOST_WHOLE)
        self._answers: dict[int | None, bytes] = {}  # by `since`, None for the whole table; of `visible`

    def publish(self, seq: int) -> None:
        """Everything up to `seq` may be seen."""
        self.visible = seq
        self._answers.clear()
        self._wake()

    def rename(self, aliases: Mapping[str, list[str]], epoch: str) -> None:
        """Other aliases. All readers get them with the whole table, because the epoch is a new one."""
        self._aliases = dict(aliases)
        self.epoch = epoch
        self._answers.clear()
        self._wake()

    def inform(self, info: int) -> None:
        """What else holds mesh-wide has this version now: all who wait are told."""
        self.info = info
        self._answers.clear()
        self._wake()

    def close(self) -> None:
        """Answer all who wait, and let nobody wait any more."""
        self._closed = True
        self._wake()

    async def answer(self, since: int, epoch: str, wait_s: float) -> bytes:
        """A TableAnswer: the delta after `since`, after `wait_s` seconds at the latest; the whole table for
        strangers.
        """
        if self.is_reader(since, epoch):
            if since == self.visible:
                await self._wait(min(wait_s, MAX_WAIT_S))
            if epoch == self.epoch:
                return self._delta(since)
        await self._catch_up()
        return self._whole()

    def is_reader(self, since: int, epoch: str) -> bool:
        """Has it seen this table before? Then it gets what changed, and anybody else the whole table."""
        return epoch == self.epoch and 0 <= since <= self.visible

    @asynccontextmanager
    async def place(self, is_large: bool) -> AsyncIterator[None]:
        """While a large answer is made and sent. Raises Problem when there are too many of them for too long."""
        if not is_large:
            yield
            return
        try:
            async with asyncio.timeout(WHOLE_WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise Problem("backpressure", "Many sidecars load the whole table now. Come again in a few seconds.",
                          retry_after_s=3) from None
        try:
            yield
        finally:
            self._places.release()

    async def _catch_up(self) -> None:
        """A whole table has no gaps: what is being written comes first, unless the disk hangs."""
        wanted, loop = self._table.seq, asyncio.get_running_loop()
        deadline = loop.time() + FULL_WAIT_S
        while self.visible < wanted and not self._closed and loop.time() < deadline:
            await self._wait(deadline - loop.time())

    def _delta(self, since: int) -> bytes:
        if (known := self._answers.get(since)) is not None:
            return known
        entries = self._table.delta_since(since, self.visible) or []
        made = encode_table(self.epoch, self.visible, False, self.root(), entries, info=self.info)
        self._answers[since] = made
        return made

    def _whole(self) -> bytes:
        if (known := self._answers.get(None)) is not None:
            return known
        entries = self._table.delta_since(0, self.visible) or []
        made = encode_table(self.epoch, self.visible, True, self.root(), entries, self._aliases, self.info)
        self._answers[None] = made
        return made

    def root(self) -> str:
        """The root hash of what is shown; empty while more is being written."""
        return self._table.hash if self.visible == self._table.seq else ""

    async def _wait(self, seconds: float) -> None:
        if self._closed or seconds <= 0:
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
