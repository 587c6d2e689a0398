"""What ran here: a row for each call by its key, noted `running` before the agent is called.

Rows that were `running` when the process began stay so: whoever knows what runs in this process takes the others for
crashed. They never expire. All others do, `keep_s` after they ended, by the journal's clock (clock.py); the age is
looked at when `expire` is called, so until then they may be there a little longer, and count.
"""

import sqlite3
from typing import Any, NamedTuple

from reach_sidecar.journal.answer import Answer, decode_answer, encode_head
from reach_sidecar.journal.database import Journal
from reach_sidecar.journal.spool import Spool, Waiting
from reach_sidecar.journal.statements import statements
from reach_sidecar.policy.dedup import State

__all__ = ["Answer", "KeyExists", "Row", "Runs"]

EXPIRE_AT_ONCE = 64
_SQL = statements("runs")


class KeyExists(Exception):
    """This key is running, or has run: the call must not begin."""


class Row(NamedTuple):
    state: State
    fingerprint: bytes
    answer: Answer | None  # of `done` ones


class Runs:
    """All methods raise StoreUnavailable. The row's new state is on the disk when they return."""

    def __init__(self, journal: Journal, *, keep_s: float) -> None:
        self._journal = journal
        self._keep_ms = int(keep_s * 1000)
        self._waiting = Waiting()

    async def get(self, key: bytes) -> Row | None:
        return await self._journal.read(_Get(key))

    async def begin(self, key: bytes, fingerprint: bytes) -> None:
        """Note the key as `running`. It may be `unknown` (a repeatable call runs again): note a crashed one so first.

        Raises KeyExists if it has a row of another state.
        """
        if not await self._journal.write(_SQL["begin"], (key, fingerprint)):
            raise KeyExists(f"{key!r} has a row already")

    async def done(self, key: bytes, answer: Answer) -> None:
        """This and the next three do nothing to a key that has no row."""
        head = encode_head(answer.status, answer.reason, answer.headers)
        await self._journal.write(_SQL["done"], (self._journal.time_ms(), head, answer.body, None, None, key))

    async def not_kept(self, key: bytes) -> None:
        """It ran, and its answer cannot be given again."""
        await self._journal.write(_SQL["end"], ("not_kept", self._journal.time_ms(), key))

    async def unknown(self, key: bytes) -> None:
        """It may have run."""
        await self._journal.write(_SQL["end"], ("unknown", self._journal.time_ms(), key))

    async def forget(self, key: bytes) -> None:
        """It did not run."""
        await self._journal.write(_SQL["forget"], (key,))

    def spool(self, key: bytes) -> Spool:
        """Keeps the answer to a call that has begun while it streams."""
        return Spool(self._journal, key, self._waiting)

    async def expire(self, now_ms: int) -> int:
        """Remove what ended `keep_s` ago, and note the time of day `now_ms`; once a minute. How many rows went."""
        await self._journal.note_time(now_ms)
        removed = await self._expire(_SQL["expire"], EXPIRE_AT_ONCE)
        return removed + await self._expire(_SQL["expire_spooled"], 1)  # each may own 64 MiB of pages

    async def _expire(self, sql: str, at_once: int) -> int:
        """In small transactions, because others wait for each."""
        until_ms = self._journal.time_ms() - self._keep_ms
        removed = 0
        while batch := await self._journal.write(sql, (until_ms, at_once)):
            removed += batch
        return removed


class _Get:
    """The question for one row."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, db: sqlite3.Connection) -> Row | None:
        row = db.execute(_SQL["get"], (self._key,)).fetchone()
        if row is None or row[4] is None:
            return _row(row, [])
        # The row and its pieces as they are at one moment: it may expire between the two statements.
        db.execute("BEGIN")
        row = db.execute(_SQL["get"], (self._key,)).fetchone()
        pieces = db.execute(_SQL["pieces"], (row[4],)).fetchall() if row is not None else []
        db.execute("COMMIT")
        return _row(row, [piece[0] for piece in pieces])


def _row(row: Any, pieces: list[bytes]) -> Row | None:
    if row is None:
        return None
    state, fingerprint, head, body, _, count = row
    if state != "done":
        return Row(state, fingerprint, None)
    if len(pieces) != (count or 0):
        raise sqlite3.DatabaseError(f"an answer has {len(pieces)} of {count} pieces")
    try:
        return Row(state, fingerprint, decode_answer(head, b"".join([*pieces, body]) if pieces else body))
    except ValueError as error:
        raise sqlite3.DatabaseError(f"the head of an answer: {error}") from error
