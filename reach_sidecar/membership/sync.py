"""The whole table, kept up to date by a long-poll for what changed since the last answer.

Entries are merged, so answers may come late, twice or from another control node. What control does not know
any more (it lost its state) is kept for two leases, in which its owner registers again, and is then dropped:
nobody would ever renew or expire it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from reach_core.messages import TableAnswer, read_entries
from reach_core.peer import Entry
from reach_core.table import Change, PeerTable
from reach_sidecar.membership.controls import Backoff, Controls, EventLog, Refused, Unreachable

WAIT_S = 25.0
CHUNK = 500
"""Entries merged at once: some 10 ms, so that calls and heartbeats get their turn in between."""

Order = tuple[int, int, int, bytes]


class Moved(Exception):
    """Another control node is talked to now."""


class TableSync:
    """`synced` is set by the first answer. `place` is `(epoch, seq)` in control's table.

    `trouble` is why control refuses to show its table, or None. `fresh_at` is the monotonic time at which
    control last confirmed the table, None if it never did. `aliases` are the mesh-wide ones; whoever needs them
    is told by `on_aliases` when they change.
    """

    def __init__(
        self,
        controls: Controls,
        table: PeerTable,
        on_changes: Callable[[list[Change]], None],
        lease_ttl_s: Callable[[], float],
        log: EventLog,
    ) -> None:
        self.synced = asyncio.Event()
        self.place = ("", 0)
        self.fresh_at: float | None = None
        self.trouble: str | None = None
        self.on_new_epoch: Callable[[], None] = _ignore
        self.aliases: dict[str, list[str]] = {}
        self.on_aliases: Callable[[Mapping[str, list[str]]], None] = _ignore
        self._controls = controls
        self._table = table
        self._on_changes = on_changes
        self._lease_ttl_s = lease_ttl_s
        self._log = log
        self._forgotten: dict[str, Order] = {}
        self._forget_at = 0.0

    def seen(self, epoch: str, seq: int) -> None:
        """A heartbeat's answer says where control's table is: if that is here, the table is fresh."""
        if (epoch, seq) == self.place:
            self.fresh_at = time.monotonic()

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            asked = self._controls.url or ""
            try:
                answer = await self._poll()
                await self._take(answer)
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
        wait_s = 0.0 if self.fresh_at is None else WAIT_S  # nothing, or only what the disk had: answer at once
        moved = asyncio.create_task(self._controls.moved.wait())
        poll = asyncio.create_task(self._controls.table(seq, epoch, wait_s))
        try:
            await asyncio.wait({moved, poll}, return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                raise Moved
            return poll.result()
        finally:
            moved.cancel()
            poll.cancel()
            await asyncio.gather(moved, poll, return_exceptions=True)

    def take_aliases(self, aliases: dict[str, list[str]]) -> None:
        if aliases != self.aliases:
            self.aliases = aliases
            self.on_aliases(aliases)

    async def _take(self, answer: TableAnswer) -> None:
        if answer.aliases is not None:
            self.take_aliases(answer.aliases)
        unreadable = 0
        named: dict[str, Order] = {}
        for start in range(0, len(answer.entries), CHUNK):
            entries, bad = read_entries(answer.entries[start : start + CHUNK])
            unreadable += bad
            named.update((entry.agent_id, entry.order) for entry in entries)
            self._merge(entries)
            if len(answer.entries) > CHUNK:
                await asyncio.sleep(0)
        if unreadable:
            self._log.event("warn", "table", status="unreadable", detail=f"{unreadable} entries could not be read")
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
        if is_new_epoch:
            self.on_new_epoch()

    def _merge(self, entries: list[Entry]) -> None:
        changes = self._table.merge(entries, _now_ms())
        if changes:
            self._on_changes(changes)

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
        self._merge(gone)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ignore(*_: object) -> None:
    pass
