"""Which agent a caller's own key went to, noted before the first send: the key only ever goes there again.

A note expires `keep_s` after it was last put, by the journal's clock (clock.py). The called side counts from the end
of the call, so put the note again when the call has ended, if it has taken long.
"""

import sqlite3
from typing import NamedTuple

from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.statements import statements

EXPIRE_AT_ONCE = 64
_SQL = statements("notes")


class Note(NamedTuple):
    agent: str
    journal: bytes  # the called store's id as known at the first send; b"-" if it is not known


class Notes:
    """All methods raise StoreUnavailable. What they change is on the disk when they return."""

    def __init__(self, journal: Journal, *, keep_s: float) -> None:
        self._journal = journal
        self._keep_ms = int(keep_s * 1000)

    async def get(self, key: bytes) -> Note | None:
        return await self._journal.read(_Get(key))

    async def put(self, key: bytes, note: Note) -> None:
        """Replaces the key's note, if there is one."""
        await self._journal.write(_SQL["put"], (key, note.agent, note.journal, self._journal.time_ms()))

    async def drop(self, key: bytes) -> None:
        await self._journal.write(_SQL["drop"], (key,))

    async def expire(self, now_ms: int) -> int:
        """Remove what was put `keep_s` ago, and note the time of day `now_ms`; once a minute. How many notes went."""
        await self._journal.note_time(now_ms)
        until_ms = self._journal.time_ms() - self._keep_ms
        removed = 0
        while batch := await self._journal.write(_SQL["expire"], (until_ms, EXPIRE_AT_ONCE)):
            removed += batch
        return removed


class _Get:
    """The question for one note."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, db: sqlite3.Connection) -> Note | None:
        row = db.execute(_SQL["get"], (self._key,)).fetchone()
        return None if row is None else Note(row[0], row[1])
