"""Log lines in SQLite: written in batches by the log's thread, found by trace id.

Lines are kept in segments: one blob of JSON lines, and one row beside it with what a query needs to pass over it
(numbers, times, worst level, and the last 4 bytes of each distinct trace id; the last ones, because ids made by some
tracers begin with a clock). A batch is a segment; small ones are merged once 512 lines have gathered, so that
a day of single lines does not become a million rows. A query by trace id scans the index rows only, about 4 bytes a
trace, then looks into the few segments that are named.

Why not a row for each line or for each trace of a batch: a row per line costs 2–3 µs, and a B-tree of random
trace ids writes a page of 4 KiB for almost every call. Figures: `bench` in the tests of this module; see FIGURES below.

WAL with `synchronous=NORMAL`: a commit survives SIGKILL, though not loss of power. A damaged file is moved aside and
the store starts anew. Nothing here raises towards the writer: `append_batch` returns why it failed.
"""

import os
import re
import sqlite3
import threading
import time
from importlib import resources
from pathlib import Path

from reach_sidecar.telemetry.line import Line

SEGMENT_LINES = 512
SMALL_LINES = 64
SEGMENT_BYTES = 256 * 1024
# A full disk can stay so for long: how often to open the file again when it could not be opened.
REOPEN_S = 1.0
TRIM_EVERY_S = 1.0
_TRIM_AT_ONCE = 64
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


# A row of segment_index: first_seq, lines, bytes, first_ms, last_ms, worst, traces
Segment = tuple[int, int, int, int, int, int, bytes]


def is_small(row: Segment) -> bool:
    """Worth merging. Larger batches stay as they are: writing them twice would cost more than scanning a row."""
    return row[1] < SMALL_LINES and row[2] < SEGMENT_BYTES


def load_statements(package: str, name: str) -> dict[str, str]:
    """The statements of a .sql file, each under the word of its `-- name:` line."""
    parts = re.split(r"^-- name: (\w+)\n", resources.files(package).joinpath(name).read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SQL = load_statements("reach_sidecar.telemetry", "sql/store.sql")


def trace_key(trace_id: str) -> bytes:
    """4 bytes that stand for `trace_id` in the index; b"" for what is no trace id."""
    return bytes.fromhex(trace_id[-8:]) if _TRACE_ID.fullmatch(trace_id) else b""


def trace_keys(ids: set[str | None]) -> bytes:
    """The keys of all `ids`, end to end."""
    joined = "".join([trace_id[-8:] for trace_id in ids if trace_id])
    try:
        keys = bytes.fromhex(joined)
    except ValueError:
        keys = b""
    if len(keys) == 4 * (len(ids) - (None in ids)):
        return keys
    return b"".join([trace_key(trace_id) for trace_id in ids if trace_id])


class LogStore:
    """`append_batch` and `close` belong to one thread, the log's; `query` (see query.py) may run in any.

    `keep_s` and `max_bytes` bound age and size of what is kept; the oldest goes first. Old lines are removed while
    new ones are written, so an idle sidecar may hold lines a little longer.
    """

    def __init__(self, path: Path, *, keep_s: float = 86400.0, max_bytes: int = 256 << 20) -> None:
        self.path = path
        self.next_seq = 1
        self.moved_aside: Path | None = None
        self.damaged = threading.Event()
        self._keep_ms = int(keep_s * 1000)
        self._max_bytes = max_bytes
        self._db: sqlite3.Connection | None = None
        self._retry_at = 0.0
        self._trim_at = 0.0
        self._error = ""
        self._small: list[Segment] = []  # at the end of the store, to be merged

    def append_batch(self, batch: list[Line]) -> tuple[int, str | None]:
        """Store `batch` in one transaction: the number of its first line, and None or why it was not stored."""
        first = self.next_seq
        try:
            db = self._connection()
            if db is None:
                return self._skip(batch), self._error
            first = self.next_seq
            with db:
                db.execute("BEGIN IMMEDIATE")
                small = self._add(db, first, batch)
                small = self._merge(db, small)
                self._trim(db)
            self._small = small
            self.next_seq = first + len(batch)
        except sqlite3.Error as error:
            self._failed(error)
            return self._skip(batch), self._error
        return first, None

    def _skip(self, batch: list[Line]) -> int:
        """Lines that could not be stored have numbers too, for those who follow."""
        first = self.next_seq
        self.next_seq = first + len(batch)
        return first

    def _add(self, db: sqlite3.Connection, first: int, batch: list[Line]) -> list[Segment]:
        """Insert the batch; returns the small segments at the end of the store."""
        small = list(self._small)
        for start in range(0, len(batch), SEGMENT_LINES):
            part = batch[start : start + SEGMENT_LINES]
            blob = b"\n".join([line[3] for line in part]) + b"\n"
            ids = {line[2] for line in part}
            row = (
                first + start,
                len(part),
                len(blob),
                part[0][0],
                part[-1][0],
                max([line[1] for line in part]),
                trace_keys(ids),
            )
            db.execute(SQL["add_lines"], (first + start, blob))
            db.execute(SQL["add_index"], row)
            small = [*small, row] if is_small(row) else []
        return small

    def _merge(self, db: sqlite3.Connection, small: list[Segment]) -> list[Segment]:
        """Make one segment of the small ones once they are enough for it."""
        lines = sum([row[1] for row in small])
        size = sum([row[2] for row in small])
        if lines < SEGMENT_LINES and size < SEGMENT_BYTES:
            return small
        if len(small) > 1:
            first = small[0][0]
            blob = b"".join([row[0] for row in db.execute(SQL["lines_from"], (first,))])
            traces = b"".join([row[6] for row in small])
            keys = {traces[at : at + 4] for at in range(0, len(traces), 4)}
            db.execute(SQL["drop_lines_from"], (first,))
            db.execute(SQL["drop_index_from"], (first,))
            db.execute(SQL["add_lines"], (first, blob))
            first_ms, last_ms = min([row[3] for row in small]), max([row[4] for row in small])
            worst = max([row[5] for row in small])
            db.execute(SQL["add_index"], (first, lines, len(blob), first_ms, last_ms, worst, b"".join(keys)))
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
        if free * page > self._max_bytes // 4:  # the bound was lowered, or much has aged: give it back
            db.execute("PRAGMA incremental_vacuum(256)")

    def _connection(self) -> sqlite3.Connection | None:
        if self.damaged.is_set():
            self._close_db()
            self._move_aside()
        if self._db is not None:
            return self._db
        if time.monotonic() < self._retry_at:
            return None
        self._retry_at = time.monotonic() + REOPEN_S
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._close_db()
            if not is_damage(error):
                raise
            self._move_aside()
            self._open()
        return self._db

    def _open(self) -> None:
        db = self._db = sqlite3.connect(self.path, isolation_level=None, timeout=2.0)
        for pragma in (
            "page_size=8192",  # half the system calls of 4096 for large batches, the same for small ones
            "auto_vacuum=INCREMENTAL",
            "journal_mode=WAL",
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

    def _failed(self, error: sqlite3.Error) -> None:
        self._error = f"{self.path}: {error}"
        if is_damage(error):
            self.damaged.set()
        elif not is_full(error):
            self._close_db()  # read-only, removed or unreadable: a new connection may find it mended

    def _move_aside(self) -> None:
        """Out of the way, for who wants to look at it; one is kept."""
        self.damaged.clear()
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
        self._close_db()


def is_damage(error: sqlite3.Error) -> bool:
    """The file itself is broken (SQLITE_CORRUPT, SQLITE_NOTADB, or a foreign schema)."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
