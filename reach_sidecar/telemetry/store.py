"""Log lines in SQLite: written in batches by the log's thread, found by trace id.

Lines are kept in segments: one blob of JSON lines, and one row beside it with what a query needs to pass over it
(numbers, times, worst level, and the last 4 bytes of each distinct trace id; the last ones, because ids made by some
tracers begin with a clock). A batch is a segment; small ones are merged once 512 lines have gathered, so that
a day of single lines does not become a million rows. A query by trace id scans the index rows only, about 4 bytes a
trace, then looks into the few segments that are named.

Measured: 1.7 µs of CPU a line in batches of 500, 2.2 in batches of 100, 70 for a single line (0.9 of it is SQLite
writing 340 bytes twice). Of 1,000,000 lines, each of another trace (375 MB), a trace is found in 11–19 ms.

Why not a row for each line or for each trace of a batch: a row per line costs 2–3 µs, and a B-tree of random
trace ids writes a page for almost every call.

WAL with `synchronous=NORMAL`: a commit survives SIGKILL, though not loss of power. A damaged file is moved aside and
the store starts anew. Nothing here raises towards the writer: `append_batch` returns why it failed.
"""

import os
import sqlite3
import threading
import time
from pathlib import Path

from reach_sidecar.telemetry.checkpoint import Checkpointer
from reach_sidecar.telemetry.line import Line, level_rank
from reach_sidecar.telemetry.query import Followed, Wanted, find
from reach_sidecar.telemetry.segment import (
    SEGMENT_BYTES,
    SEGMENT_LINES,
    SQL,
    Segment,
    cut,
    is_damage,
    is_full,
    is_small,
    merged,
)

# A full disk can stay so for long: how often to open the file again when it could not be opened.
REOPEN_S = 1.0
TRIM_EVERY_S = 1.0
_TRIM_AT_ONCE = 64
_BYTES_OF_A_COMMIT = 3 * 8192  # the last pages of both tables, written again each time
_GIVE_BACK_PAGES = 256


class LogStore:
    """`append_batch` and `close` belong to one thread, the log's.

    `keep_s` and `max_bytes` bound age and size of what is kept; the oldest goes first. Old lines are removed while
    new ones are written, so an idle sidecar may hold lines a little longer.
    """

    def __init__(self, path: Path, *, keep_s: float = 86400.0, max_bytes: int = 256 << 20) -> None:
        self.path = path
        self.next_seq = 1
        self.moved_aside: Path | None = None
        self._damaged = threading.Event()
        self._keep_ms = int(keep_s * 1000)
        self._max_bytes = max_bytes
        self._db: sqlite3.Connection | None = None
        self._retry_at = 0.0
        self._trim_at = 0.0
        self._give_back = False
        self._error = ""
        self._checkpointer = Checkpointer(path)
        self._small: list[Segment] = []  # at the end of the store, to be merged

    def append_batch(self, batch: list[Line]) -> tuple[int, str | None]:
        """Store `batch` in one transaction: the number of its first line, and None or why it was not stored.

        An empty batch only opens the store, which sets `next_seq`.
        """
        failure = None
        try:
            if (db := self._connection()) is None:
                failure = self._error
            elif batch:
                with db:
                    db.execute("BEGIN IMMEDIATE")
                    small = self._add(db, self.next_seq, batch)
                    self._trim(db)
                self._small = small
                if self._give_back:
                    self._give_back = False
                    # As a script, because execute() would step only once, and each step frees one page.
                    db.executescript(f"PRAGMA incremental_vacuum({_GIVE_BACK_PAGES})")
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            failure = self._error
        # Lines that could not be stored have numbers too, for those who follow.
        first = self.next_seq
        self.next_seq = first + len(batch)
        return first, failure

    def query(
        self,
        trace_id: str | None = None,
        since_ms: int = 0,
        level: str = "debug",
        limit: int = 10_000,
        after_seq: int = 0,
    ) -> list[Followed]:
        """The newest `limit` lines that fit, oldest first: see query.py. May run in any thread.

        Raises sqlite3.Error when the store cannot be read.
        """
        wanted = Wanted(trace_id, since_ms, level_rank(level), after_seq, limit)
        try:
            return find(self.path, wanted)
        except sqlite3.Error as error:
            if is_damage(error):
                self._damaged.set()  # the writer moves it aside
            raise

    def _add(self, db: sqlite3.Connection, first: int, batch: list[Line]) -> list[Segment]:
        """Insert the batch, and make one segment of the small ones at the end once they are enough for it."""
        small = list(self._small)
        for row, lines in cut(first, batch):
            db.execute(SQL["add_lines"], (row[0], lines))
            db.execute(SQL["add_index"], row)
            self._checkpointer.wrote(row[2] + _BYTES_OF_A_COMMIT)
            small = [*small, row] if is_small(row) else []
        lines_waiting = sum([row[1] for row in small])
        if len(small) < 2 or (lines_waiting < SEGMENT_LINES and sum([row[2] for row in small]) < SEGMENT_BYTES):
            return small
        start = small[0][0]
        blob = b"".join([row[0] for row in db.execute(SQL["lines_from"], (start,))])
        db.execute(SQL["drop_lines_from"], (start,))
        db.execute(SQL["drop_index_from"], (start,))
        db.execute(SQL["add_lines"], (start, blob))
        self._checkpointer.wrote(len(blob))
        db.execute(SQL["add_index"], merged(small))
        return []

    def _trim(self, db: sqlite3.Connection) -> None:
        """Remove what is too old or too much: a bounded piece at a time, once a second."""
        now = time.monotonic()
        if now < self._trim_at:
            return
        self._trim_at = now + TRIM_EVERY_S
        old_ms = int(time.time() * 1000) - self._keep_ms
        page, pages, free = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        excess = (pages - free) * page - self._max_bytes
        until = None
        for first, last_ms, size in db.execute(SQL["oldest"], (_TRIM_AT_ONCE,)):
            if last_ms >= old_ms and excess <= 0:
                break
            until = first
            excess -= size
        if until is not None:
            db.execute(SQL["drop_lines_until"], (until,))
            db.execute(SQL["drop_index_until"], (until,))
            self._trim_at = 0.0
        # The bound was lowered, or much has aged.
        self._give_back = free * page > self._max_bytes // 4

    def _connection(self) -> sqlite3.Connection | None:
        if self._damaged.is_set():
            self._close_db()
            self._move_aside()
        if self._db is not None:
            return self._db
        if time.monotonic() < self._retry_at:
            return None
        self._retry_at = time.monotonic() + REOPEN_S
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            self._close_db()
            if not is_damage(error):
                raise
            self._move_aside()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = self._db = sqlite3.connect(self.path, isolation_level=None, timeout=2.0)
        for pragma in (
            "page_size=8192",  # half the system calls of 4096 for large batches, the same for small ones
            "auto_vacuum=INCREMENTAL",
            "journal_mode=WAL",
            "wal_autocheckpoint=0",  # see checkpoint.py
            "synchronous=NORMAL",
            "secure_delete=OFF",
            "cache_size=-1024",
            f"journal_size_limit={16 << 20}",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        db.executescript(SQL["schema"])
        self._small = []
        rows = db.execute(SQL["newest"], (SEGMENT_LINES,)).fetchall()
        if rows:
            self.next_seq = max(self.next_seq, rows[0][0] + rows[0][1])
        for row in rows:
            if not is_small(row):
                break
            self._small.insert(0, row)
        return db

    def _failed(self, error: Exception) -> None:
        self._error = f"{self.path}: {error}"
        if is_damage(error):
            self._damaged.set()
        elif not is_full(error):
            self._close_db()  # read-only, removed or unreadable: a new connection may find it mended

    def _move_aside(self) -> None:
        """Out of the way, for who wants to look at it; one is kept."""
        self._damaged.clear()
        aside = self.path.with_name(self.path.name + ".damaged")
        try:
            os.replace(self.path, aside)
            self.moved_aside = aside
        except OSError:
            pass
        for suffix in ("-wal", "-shm"):
            try:
                os.unlink(f"{self.path}{suffix}")
            except OSError:
                pass
        self._small = []
        self._retry_at = 0.0

    def _close_db(self) -> None:
        if self._db is not None:
            try:
                self._db.close()
            except sqlite3.Error:
                pass
            self._db = None

    def close(self) -> None:
        self._checkpointer.wait(1.0)
        self._close_db()
