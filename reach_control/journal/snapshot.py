"""The table on disk: the entries as they are, written in batches away from the requests.

WAL with `synchronous=NORMAL`: what was saved survives SIGKILL at any moment, and a loss of power costs at
most the latest batches, which owners and silence bring back. Heartbeats never come here, for they alter no
entry.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reach_core.peer import Entry, decode_entry, with_signature

if TYPE_CHECKING:
    import aiosqlite

FORMAT = 2
_SQL = Path(__file__).parent


class SnapshotError(Exception):
    """The database cannot be used; the text says why and what to do."""


class Noted(NamedTuple):
    """What a former process had: entries with their signatures, and how many rows were unreadable."""

    entries: list[Entry]
    unreadable: int


class Snapshot:
    """`open` first. `save` and `close` may be called from one task at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: aiosqlite.Connection | None = None
        self._save_sql = (_SQL / "save.sql").read_text()
        self._forget_sql = (_SQL / "forget.sql").read_text()

    async def open(self, now_ms: int) -> Noted:
        """Make or open the database and read it. Raises SnapshotError."""
        import aiosqlite  # late: a verb that only looks around does not need it

        try:
            sqlite3.connect(self.path).close()  # a file that cannot be opened would leave aiosqlite's thread behind
            db = self._db = await aiosqlite.connect(self.path, isolation_level=None)
            await db.execute("PRAGMA journal_mode = WAL")
            await db.execute("PRAGMA synchronous = NORMAL")
            found = await self._format(db)
            if found > FORMAT:
                raise SnapshotError(
                    f"{self.path} was written by a newer version (format {found}, this one reads {FORMAT}). "
                    "Upgrade, or set `state_dir` to another directory."
                )
            if await self._first(db, "PRAGMA quick_check(1)") != "ok":
                raise sqlite3.DatabaseError("quick_check found damage")
            if found == 1:
                await db.executescript((_SQL / "from_1.sql").read_text())
            await db.executescript((_SQL / "create.sql").read_text())
            await db.execute(f"PRAGMA user_version = {FORMAT}")
            rows = await db.execute_fetchall((_SQL / "load.sql").read_text(), {"now_ms": now_ms})
        except sqlite3.Error as error:
            await self.close()
            raise SnapshotError(self._sentence(error)) from error
        except SnapshotError:
            await self.close()
            raise
        return _read(rows)

    async def save(self, entries: Iterable[Entry], now_ms: int) -> None:
        """Note these entries in one transaction, and drop tombstones whose time is over. Raises SnapshotError."""
        rows = [
            {
                "agent_id": entry.agent_id,
                "encoded": entry.encoded,
                "signature": entry.signature,
                "expires_ms": entry.expires_ms,
            }
            for entry in entries
        ]
        db = self._db
        if db is None:
            raise SnapshotError(f"{self.path} is closed.")
        try:
            await db.execute("BEGIN IMMEDIATE")
            try:
                await db.executemany(self._save_sql, rows)
                await db.execute(self._forget_sql, {"now_ms": now_ms})
                await db.execute("COMMIT")
            except sqlite3.Error:
                if db.in_transaction:
                    await db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise SnapshotError(self._sentence(error)) from error

    async def clear(self) -> None:
        """Forget everything: what is noted from now on is all there is. Raises SnapshotError."""
        if self._db is None:
            raise SnapshotError(f"{self.path} is closed.")
        try:
            await self._db.execute("DELETE FROM entry")
        except sqlite3.Error as error:
            raise SnapshotError(self._sentence(error)) from error

    async def close(self) -> None:
        if self._db is not None:
            db, self._db = self._db, None
            await db.close()

    async def _format(self, db: "aiosqlite.Connection") -> int:
        found = await self._first(db, "PRAGMA user_version")
        return found if isinstance(found, int) else 0

    async def _first(self, db: "aiosqlite.Connection", sql: str) -> object:
        for row in await db.execute_fetchall(sql):
            return row[0]
        return None

    def _sentence(self, error: sqlite3.Error) -> str:
        if isinstance(error, sqlite3.OperationalError):
            return (
                f"Cannot use the database {self.path}: {error}. See that this user may write to it and its directory "
                "and that the disk has space, or set `state_dir` to another directory."
            )
        return (
            f"The database {self.path} is damaged: {error}. Move it away (with -wal and -shm) and start again: "
            "the agents register anew within one heartbeat."
        )


def _read(rows: Iterable[sqlite3.Row]) -> Noted:
    entries, unreadable = [], 0
    for encoded, signature in rows:
        try:
            entry = decode_entry(bytes(encoded))
        except (ValueError, TypeError):
            unreadable += 1
            continue
        entries.append(with_signature(entry, bytes(signature)) if signature else entry)
    return Noted(entries, unreadable)
