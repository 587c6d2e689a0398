"""The one thread that writes: whatever waits goes into one transaction, and so shares one sync of the disk.

While one group is being synced the next one gathers, so a hundred calls at once wait for one or two syncs, and a
single call for no timer. Small writes come before bulk ones (pieces of answers), of which a group takes a bounded
amount: a begin does not queue behind somebody's 16 MiB.

Failure. What is wrong with one write alone (its key is taken, its value too large) fails that statement only, which
SQLite takes back by itself. What fails a transaction (no room, an I/O error) takes back all of it, and then the group
is halved and each half tried in turn: one write that cannot be done, such as a piece too large for what room is left,
fails alone, and its neighbours are written. When three have failed alone the trouble is not theirs, and the rest of
the group fails at once: so a full disk costs a group of any size about ten attempts, and calls are refused quickly.
The next group is tried anew, which is all it takes to recover. Damage is different: nothing is written any more.

A failed sync may leave a group in the log that was reported as failed. The next transaction overwrites it; if the
process ends first, a `running` row may appear that no one was promised. It errs on the safe side: it blocks a repeat.

The log is moved into the database between groups, when nothing waits or the log is large, and after those who waited
for the group were told. Inside a commit, as SQLite does it by default, it would make a group wait for two more syncs.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from reach_sidecar.journal.file import PAGE_BYTES, is_damage, reconnect

Value = bytes | str | int | None

BULK_BYTES = 1 << 20
_FAILED_ALONE = 3
_IDLE_LOG_BYTES = 2 << 20
_LARGE_LOG_BYTES = 16 << 20
# Free pages are used again; beyond a quarter of the file they are given back while nothing waits, in bounded pieces.
_GIVE_BACK_EVERY_S = 10.0
_GIVE_BACK_PAGES = 256
_KEEP_FREE_BYTES = 4 << 20


class Write:
    """One statement, and what became of it: rows `changed`, or the `error`."""

    __slots__ = ("bulk", "changed", "error", "settled", "sql", "values")

    def __init__(
        self, sql: str, values: tuple[Value, ...], settled: asyncio.Future[int] | None = None, bulk: int = 0
    ) -> None:
        self.sql = sql
        self.values = values
        self.settled = settled
        self.bulk = bulk  # bytes; 0: comes first
        self.changed = 0
        self.error: Exception | None = None


class Writer:
    """`put` and `stop` may be called from any thread; `settle` gets each group in the writer's, once it is decided."""

    def __init__(
        self, path: Path, db: sqlite3.Connection, id_: bytes, settle: Callable[[list[Write]], None], max_bytes: int
    ) -> None:
        self.commits = 0
        self.damage: Exception | None = None
        self._path = path
        self._db: sqlite3.Connection | None = db
        self._id = id_
        self._settle = settle
        self._max_pages = max_bytes // PAGE_BYTES
        self._inode = os.stat(path).st_ino
        self._limit(db)
        self._first: deque[Write] = deque()
        self._bulk: deque[Write] = deque()
        self._stopping = False
        self._wake = threading.Condition()
        self._give_back_at = 0.0
        self._full = False
        self._thread = threading.Thread(target=self._run, name="reach-journal", daemon=True)
        self._thread.start()

    def put(self, writes: list[Write]) -> None:
        with self._wake:
            for write in writes:
                (self._bulk if write.bulk else self._first).append(write)
            self._wake.notify()

    def stop(self) -> None:
        """Once all that waits is written."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while group := self._gather():
            self._write(group)
            self._settle(group)
            del group  # its bodies are not needed while nothing happens
            while self._tidy() and not self._waits():
                pass
        self._close()

    def _gather(self) -> list[Write]:
        with self._wake:
            while not self._waits():
                self._wake.wait()
            group = list(self._first)
            self._first.clear()
            size = 0
            while self._bulk and size < BULK_BYTES:
                group.append(self._bulk.popleft())
                size += group[-1].bulk
        return group

    def _write(self, group: list[Write]) -> None:
        """Every write of the group is done or has its error afterwards."""
        failed_alone = 0
        parts = [group]
        while parts:
            part = parts.pop()
            error = self.damage or self._transaction(part)
            if error is None:
                continue
            if is_damage(error):
                self.damage = error
            failed_alone += len(part) == 1
            if self.damage is not None or failed_alone >= _FAILED_ALONE:
                for write in (write for rest in (part, *parts) for write in rest):
                    write.error = error
                return
            if len(part) == 1:
                part[0].error = error
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]

    def _transaction(self, part: list[Write]) -> Exception | None:
        try:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            for write in part:
                write.error = None
                try:
                    write.changed = db.execute(write.sql, write.values).rowcount
                except Exception as error:
                    if not _is_its_own(error) or not db.in_transaction:
                        raise
                    write.error = error
            db.execute("COMMIT")
            self.commits += 1
        except Exception as error:
            self._take_back(error)
            return error
        return None

    def _take_back(self, error: Exception) -> None:
        db = self._db
        try:
            if db is not None and db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()
        # Read-only, removed or unreadable: a new connection may find it mended. A full disk needs none.
        name = getattr(error, "sqlite_errorname", "")
        self._full = name == "SQLITE_FULL"
        if name not in ("SQLITE_FULL", "SQLITE_BUSY"):
            self._close()

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and os.stat(self._path).st_ino != self._inode:
            # What is written to a removed file is lost with the process.
            raise OSError("the file was replaced by another one")
        if self._db is None:
            db = reconnect(self._path, self._id)
            self._inode = os.stat(self._path).st_ino
            self._limit(db)
            self._db = db
        return self._db

    def _limit(self, db: sqlite3.Connection) -> None:
        if self._max_pages:
            db.execute(f"PRAGMA max_page_count={self._max_pages}").fetchall()

    def _waits(self) -> bool:
        return bool(self._first or self._bulk or self._stopping)

    def _tidy(self) -> bool:
        """Between groups; True if there is more of it to do. What fails here will fail the next write too."""
        db = self._db
        if db is None or self.damage is not None:
            return False
        try:
            log_bytes = os.stat(f"{self._path}-wal").st_size
            if log_bytes >= (_LARGE_LOG_BYTES if self._waits() else _IDLE_LOG_BYTES) or (self._full and log_bytes):
                self._full = False  # the log's room is used again once all of it is in the database
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            return not self._waits() and time.monotonic() >= self._give_back_at and self._give_back(db)
        except (sqlite3.Error, OSError):
            return False

    def _give_back(self, db: sqlite3.Connection) -> bool:
        free = db.execute("PRAGMA freelist_count").fetchone()[0]
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        if free > pages // 4 and free * PAGE_BYTES > _KEEP_FREE_BYTES:
            # As a script, because execute() would step only once, and each step frees one page.
            db.executescript(f"PRAGMA incremental_vacuum({_GIVE_BACK_PAGES})")
            return True
        self._give_back_at = time.monotonic() + _GIVE_BACK_EVERY_S
        return False

    def _close(self) -> None:
        if self._db is not None:
            try:
                self._db.close()
            except sqlite3.Error:
                pass
            self._db = None


def _is_its_own(error: Exception) -> bool:
    """The statement is at fault, and would be with any disk."""
    if isinstance(error, sqlite3.Error):
        return isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError
                          | sqlite3.NotSupportedError | sqlite3.InterfaceError)  # fmt: skip
    return not isinstance(error, OSError | MemoryError)
