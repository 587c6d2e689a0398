"""The file `delivery.db`: made whole or not at all, opened with care, and never replaced.

A dedup store that silently starts anew has forgotten what ran, and the next repeat runs it twice. So a new file is
made under another name and moved into place when it is complete: whatever has the right name and is empty, cut off,
foreign or damaged is an error that a person decides about. A write-ahead log that lost its database is one too
(SQLite would play it back into the new file). After that the file may only be opened again if it is still the same.

WAL with `synchronous=FULL`: a commit is on the disk when it returns, and survives loss of power.
"""

import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from reach_sidecar.journal.statements import statements

FORMAT = 1
PAGE_BYTES = 4096
SQL = statements("schema")
# Looking through the whole file takes about a second for each 500 MB that the disk has not at hand.
_CHECK_WHOLE_BYTES = 64 << 20
_BUSY_S = 2.0  # for somebody who looks at the file with other tools


class JournalError(Exception):
    """The file cannot be opened; the text says why and what to do."""


class StoreUnavailable(Exception):
    """A write or a read failed now: nothing of it is kept. It may work again later without a restart."""


class Opened(NamedTuple):
    db: sqlite3.Connection  # may be used in any one thread
    id: bytes
    time_ms: int  # both as last noted: see clock.py
    wall_ms: int


def open_file(path: Path) -> Opened:
    """Make the file if there is none, and open it for writing. Raises JournalError."""
    try:
        if not path.exists():
            log = Path(f"{path}-wal")
            if log.exists() and log.stat().st_size > 0:
                raise JournalError(
                    f"{log} is there, but not its database {path}. Put that back, or move the log away to start anew: "
                    "what the log notes as run may then run a second time if it is repeated."
                )
            _make(path)
        return _open(path)
    except sqlite3.OperationalError as error:
        raise JournalError(_cannot_use(path, error)) from error
    except sqlite3.Error as error:
        raise JournalError(damaged(path, error)) from error
    except OSError as error:
        raise JournalError(_cannot_use(path, error)) from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there. Raises sqlite3.Error."""
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
    )
    try:
        for pragma in (
            "synchronous=FULL",
            "wal_autocheckpoint=0",  # see writer.py
            "cache_size=-4096",
            "secure_delete=OFF",
            f"journal_size_limit={16 << 20}",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        db.close()
        raise
    return db


def reconnect(path: Path, wanted: bytes) -> sqlite3.Connection:
    """Another connection to the file whose id is `wanted`. Raises sqlite3.Error, and OSError for another file."""
    db = connect(path)
    try:
        row = db.execute(SQL["identity"]).fetchone()
        if row is None or bytes(row[0]) != wanted:
            raise OSError("this is another file than the one that was opened at the start")
    except (sqlite3.Error, OSError):
        db.close()
        raise
    return db


def is_damage(error: Exception) -> bool:
    """The file itself is broken, and trying again will not help."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def damaged(path: Path, error: Exception | str) -> str:
    return (
        f"{path} is damaged: {error}. It notes which calls ran, so it is not replaced by itself: put a copy back, or "
        "move it away (with -wal and -shm) and start again. Then repeats of calls from before may run a second time "
        "where the caller chose the key, and end as outcome_unknown otherwise."
    )


def _cannot_use(path: Path, error: Exception) -> str:
    return (
        f"Cannot use {path}: {error}. See that this user may write to it and its directory and that the disk has "
        "room, or set `state_dir` to another directory."
    )


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{new}{suffix}").unlink(missing_ok=True)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # answers are nobody else's business
    db = sqlite3.connect(new, isolation_level=None)
    try:
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        db.execute("PRAGMA synchronous=FULL")
        db.executescript(f"BEGIN; {SQL['schema']}; PRAGMA user_version={FORMAT}; COMMIT")
        now_ms = int(time.time() * 1000)
        db.execute(SQL["born"], (secrets.token_hex(8).encode(), now_ms, now_ms))
        db.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        db.close()
    os.rename(new, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _open(path: Path) -> Opened:
    if path.stat().st_size == 0:
        raise sqlite3.DatabaseError("the file is empty")
    db = connect(path)
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise JournalError(
                f"{path} was written by a newer version (format {found}, this one reads {FORMAT}). "
                "Upgrade, or set `state_dir` to another directory."
            )
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'journal'").fetchone():
            raise sqlite3.DatabaseError("it is not a delivery journal")
        if path.stat().st_size <= _CHECK_WHOLE_BYTES:
            check = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if check != "ok":
                raise sqlite3.DatabaseError(check.splitlines()[-1])
        row = db.execute(SQL["identity"]).fetchone()
        if row is None:
            raise sqlite3.DatabaseError("its id is missing")
        db.execute(SQL["drop_orphans"])  # shows as well that it can be written to
    except (sqlite3.Error, OSError, JournalError):
        db.close()
        raise
    return Opened(db, bytes(row[0]), row[1], row[2])
