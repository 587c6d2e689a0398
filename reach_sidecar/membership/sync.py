"""The whole table, from control: once where gossip keeps it up to date from then on, else by a long-poll for what
changed since the last answer.

Gossip reaches those who are in the table. A gateway is in none, and neither is a sidecar before it is registered: they
poll. Entries are merged, so answers may come late, twice or from another control node. What control does not know
any more (it lost its state) is kept for two leases, in which its owner registers again, and is then dropped:
nobody would ever renew or expire it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from reach_core.messages import TableAnswer, read_entries
from reach_core.peer import Entry
from reach_core.table import PeerTable
from reach_sidecar.membership.controls import Backoff, Controls, EventLog, Refused, Unreachable

WAIT_S = 25.0
CHUNK = 50
"""Entries verified and merged at once: under 10 ms, so that calls and heartbeats get their turn in between."""

Order = tuple[int, int, int, bytes]


class Moved(Exception):
    """Another control node is talked to now, or none has to be asked any more."""


class TableSync:
    """`synced` is set by the first answer. `place` is `(epoch, seq)` in control's table.

    `take` merges what came from a control node, `drop` tombstones of this node's own making; `prepare` is awaited
    before each question. `trouble` is why control refuses to show its table, or None. `fresh_at` is the monotonic time
    at which the table was last confirmed, None if it never was. `on_aliases` is told the mesh-wide ones that come with
    an answer, `on_whole` that a whole table was taken in, `on_answer` which control node answered and the version of
    its facts.
    """

    def __init__(
        self,
        controls: Controls,
        table: PeerTable,
        take: Callable[[list[Entry], str], object],
        drop: Callable[[list[Entry]], object],
        lease_ttl_s: Callable[[], float],
        log: EventLog,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.synced = asyncio.Event()
        self.place = ("", 0)
        self.fresh_at: float | None = None
        self.trouble: str | None = None
        self.on_new_epoch: Callable[[], None] = _ignore
        self.on_whole: Callable[[], None] = _ignore
        self.on_answer: Callable[[str, int], None] = _ignore
        self.on_aliases: Callable[[dict[str, list[str]]], None] = _ignore
        self._controls = controls
        self._table = table
        self._take_entries = take
        self._drop = drop
        self._prepare = prepare
        self._begun = 0  # times the whole table had to be asked for anew
        self._rests = False
        self._one_more = False  # poll: what changed before gossip knew of us
        self._turned = asyncio.Event()
        self._lease_ttl_s = lease_ttl_s
        self._log = log
        self._forgotten: dict[str, Order] = {}
        self._forget_at = 0.0

    def seen(self, epoch: str, seq: int, root: str) -> None:
        """A heartbeat's answer says where control's table is: if that is here, the table is fresh."""
        if (epoch, seq) == self.place or (root and root == self._table.hash):
            self.confirmed()

    def confirmed(self) -> None:
        """The table is what others have, too."""
        self.fresh_at = time.monotonic()

    def rest(self, rests: bool) -> None:
        """Gossip keeps the table up to date from now on, or does so no longer."""
        if rests != self._rests:
            self._rests = self._one_more = rests
            self._forgotten = {}  # others have it: a comparison will tell control
            turned, self._turned = self._turned, asyncio.Event()
            turned.set()

    @property
    def polls(self) -> bool:
        """Is control the one that tells of changes?"""
        return not self._rests

    def begin_again(self) -> None:
        """Ask for the whole table, whatever is known."""
        self.place, self.fresh_at = ("", 0), None
        self._begun += 1
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            if self._rests and self.fresh_at is not None and not self._one_more:
                await self._turned.wait()
                continue
            asked = self._controls.url or ""
            try:
                is_last = self._one_more
                if self._prepare is not None:
                    await self._prepare()
                begun = self._begun
                answer = await self._poll()
                self.on_answer(asked, answer.info)
                await self._take(answer, begun, asked)
                self._one_more = self._one_more and not is_last
            except Moved:
                continue
            except Unreachable:
                alone = self._controls.move_on(asked) or asked == self._controls.url
                if alone:
                    await asyncio.sleep(backoff.next_s(self._controls.chance()))
            except Refused as refusal:
                if refusal.detail != self.trouble:
                    self.trouble = refusal.detail
                    self._log.event("warn", "table", status=refusal.code, detail=refusal.detail)
                await asyncio.sleep(backoff.next_s(self._controls.chance()))
            else:
                self.trouble = None
                backoff.reset()

    async def _poll(self) -> TableAnswer:
        epoch, seq = self.place
        # nothing, or only what the disk had, or asked for the last time: answer at once
        wait_s = 0.0 if self.fresh_at is None or self._one_more else WAIT_S
        moved = asyncio.create_task(self._controls.moved.wait())
        turned = asyncio.create_task(self._turned.wait())
        poll = asyncio.create_task(self._controls.table(seq, epoch, wait_s))
        try:
            await asyncio.wait({moved, turned, poll}, return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                raise Moved
            return poll.result()
        finally:
            for task in (moved, turned, poll):
                task.cancel()
            await asyncio.gather(moved, turned, poll, return_exceptions=True)

    async def _take(self, answer: TableAnswer, begun: int, asked: str) -> None:
        if answer.aliases is not None:
            self.on_aliases(answer.aliases)
        unreadable = 0
        named: dict[str, Order] = {}
        for start in range(0, len(answer.entries), CHUNK):
            part = slice(start, start + CHUNK)
            entries, bad = read_entries(answer.entries[part], answer.signatures[part])
            unreadable += bad
            named.update((entry.agent_id, entry.order) for entry in entries)
            self._take_entries(entries, asked)
            if len(answer.entries) > CHUNK:
                await asyncio.sleep(0)
        if unreadable:
            self._log.event("warn", "table", status="unreadable", detail=f"{unreadable} entries could not be read")
        if begun != self._begun:  # the table was emptied meanwhile: part of this answer is lost
            return
        is_new_epoch = answer.epoch != self.place[0]
        if answer.full:
            self._expect(named)
        self.place = (answer.epoch, answer.seq)
        self.fresh_at = time.monotonic()
        self._table.expire(_now_ms())
        self._drop_forgotten()
        if not self.synced.is_set():
            self._log.event("info", "table", status="synced", detail=f"{len(self._table)} agents are known")
            self.synced.set()
        if answer.full:
            self.on_whole()
        if is_new_epoch:
            self.on_new_epoch()

    def _expect(self, named: dict[str, Order]) -> None:
        """A snapshot came: what it does not name has to be registered again within two leases."""
        self._forgotten = {entry.agent_id: entry.order for entry in self._table if entry.agent_id not in named}
        self._forget_at = time.monotonic() + 2 * self._lease_ttl_s()

    def _drop_forgotten(self) -> None:
        if not self._forgotten or time.monotonic() < self._forget_at:
            return
        now_ms = _now_ms()
        gone: list[Entry] = []
        for agent_id, order in self._forgotten.items():
            entry = self._table.get(agent_id)
            if entry is not None and entry.order == order and not entry.is_tombstone:
                gone.append(entry.tombstone(now_ms))
        self._forgotten = {}
        self._drop(gone)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ignore(*_: object) -> None:
    pass
