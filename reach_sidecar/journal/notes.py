"""Which agent a caller's own key went to, noted before the first send: the key only ever goes there again.

A note expires `keep_s` after it was last put, by the journal's clock (clock.py). The called side counts from the end
of the call, so put the note again when the call has ended, if it has taken long.

Most keys are new, and to learn from the disk that there is no note takes longer than all else a call costs. So once
`learn` was called, and as long as they are not too many, the hashes of all noted keys are held in memory: a key whose
hash is not there has no note.
"""

import sqlite3
from typing import NamedTuple

from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.statements import statements

EXPIRE_AT_ONCE = 64
MOST_KNOWN = 100_000  # hashes in memory, about 7 MB
_SQL = statements("notes")


class Note(NamedTuple):
    agent: str
    journal: bytes  # the called store's id as known at the first send; b"-" if it is not known
    caller: str = ""  # the name this sidecar's agent went by: the called side knows the key together with it


class Notes:
    """All methods raise StoreUnavailable. What they change is on the disk when they return."""

    def __init__(self, journal: Journal, *, keep_s: float) -> None:
        self._journal = journal
        self._keep_ms = int(keep_s * 1000)
        self._learnt = False
        self._known: set[int] | None = None  # None: ask the disk
        self._added: set[int] = set()  # since they were last read from there
        self._being_put: list[int] = []

    async def learn(self) -> None:
        """Read from the disk which keys are noted."""
        added = self._added = set(self._being_put)
        keys = await self._journal.read(_Keys())
        self._known = None if len(keys) > MOST_KNOWN else {hash(key) for key in keys} | added
        self._learnt = True

    async def get(self, key: bytes) -> Note | None:
        if self._known is not None and hash(key) not in self._known:
            return None
        return await self._journal.read(_Get(key))

    async def put(self, key: bytes, note: Note) -> None:
        """Replaces the key's note, if there is one."""
        hashed = hash(key)
        self._added.add(hashed)
        if self._known is not None:
            self._known.add(hashed)
            if len(self._known) > MOST_KNOWN:
                self._known = None
        self._being_put.append(hashed)
        try:
            values = (key, note.agent, note.journal, note.caller, self._journal.time_ms())
            await self._journal.write(_SQL["put"], values)
        finally:
            self._being_put.remove(hashed)

    async def drop(self, key: bytes) -> None:
        await self._journal.write(_SQL["drop"], (key,))

    async def expire(self, now_ms: int) -> int:
        """Remove what was put `keep_s` ago, and note the time of day `now_ms`; once a minute. How many notes went."""
        await self._journal.note_time(now_ms)
        until_ms = self._journal.time_ms() - self._keep_ms
        removed = 0
        while batch := await self._journal.write(_SQL["expire"], (until_ms, EXPIRE_AT_ONCE)):
            removed += batch
            if batch < EXPIRE_AT_ONCE:
                break
        if self._learnt and (removed or len(self._added) > MOST_KNOWN):
            await self.learn()
        return removed


class _Keys:
    """The question for all keys, or one more than can be held."""

    __slots__ = ()

    def __call__(self, db: sqlite3.Connection) -> list[bytes]:
        return [row[0] for row in db.execute(_SQL["keys"], (MOST_KNOWN + 1,))]


class _Get:
    """The question for one note."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, db: sqlite3.Connection) -> Note | None:
        row = db.execute(_SQL["get"], (self._key,)).fetchone()
        return None if row is None else Note(*row)
