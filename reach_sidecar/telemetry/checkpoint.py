"""Moves a write-ahead log into its database in a short-lived thread of its own.

SQLite does that inside a commit by default, and waits for the disk there: on a busy one for seconds, in which lines
gather that a SIGKILL would lose. Beside the writer it holds nobody up. Nothing is started while nothing is written.
"""

import sqlite3
import threading
from pathlib import Path

EVERY_BYTES = 8 << 20
# What was written during a pass needs another; a log this large is worth stopping the writer for a moment.
_PASSES = 5
_TOO_LARGE_BYTES = 64 << 20


class Checkpointer:
    """`wrote` belongs to the writer's thread. The writer sets `wal_autocheckpoint=0`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = 0
        self._thread: threading.Thread | None = None

    def wrote(self, size: int) -> None:
        """Count `size` bytes; begin a pass when they are enough and none is under way."""
        self._bytes += size
        if self._bytes >= EVERY_BYTES and (self._thread is None or not self._thread.is_alive()):
            self._bytes = 0
            self._thread = threading.Thread(target=self._run, name="reach-log-checkpoint", daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """For a pass that is under way."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            db = sqlite3.connect(self._path, isolation_level=None, timeout=1.0)
        except sqlite3.Error:
            return
        try:
            db.execute("PRAGMA synchronous=NORMAL")
            for _ in range(_PASSES):
                _, logged, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if logged == moved:
                    return
            wal = self._path.with_name(self._path.name + "-wal")
            if wal.stat().st_size > _TOO_LARGE_BYTES:
                db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        except (sqlite3.Error, OSError):
            return  # the writer meets the same trouble and reports it
        finally:
            db.close()
