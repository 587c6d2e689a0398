"""Finding stored lines: by trace id, time and level, newest first inside, oldest first in the answer."""

import sqlite3
from pathlib import Path

import orjson

from reach_sidecar.telemetry.follow import Followed
from reach_sidecar.telemetry.line import LEVELS
from reach_sidecar.telemetry.store import SQL, LogStore, is_damage, trace_key


def query(
    store: LogStore,
    *,
    trace_id: str | None = None,
    since_ms: int = 0,
    rank: int = 0,
    after_seq: int = 0,
    limit: int = 10_000,
) -> list[Followed]:
    """The newest `limit` lines that fit, oldest first. Runs on a connection of its own: call it off the loop.

    Raises sqlite3.Error when the store cannot be read; an absent one has no lines.
    """
    wanted = {"since_ms": since_ms, "worst": rank, "after_seq": after_seq}
    if trace_id is not None:
        wanted["trace"] = key = trace_key(trace_id)  # type: ignore[assignment]
        if not key:
            return []
    try:
        db = _connect(store.path)
    except FileNotFoundError:
        return []
    found: list[Followed] = []
    try:
        # One read transaction: merging moves lines between segments, and must not do so under this query.
        db.execute("BEGIN")
        for first, _ in db.execute(SQL["find" if trace_id is None else "find_trace"], wanted):
            row = db.execute(SQL["lines_of"], (first,)).fetchone()
            if row is None:
                continue
            lines = _fitting(first, row[0], trace_id, since_ms, rank, after_seq)
            found += reversed(lines)
            if len(found) >= limit:
                break
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            store.damaged.set()
        raise
    finally:
        db.close()
    return found[limit - 1 :: -1] if len(found) > limit else found[::-1]


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise FileNotFoundError(path)
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=2.0)
    db.execute("PRAGMA mmap_size=1073741824").fetchall()
    return db


def _fitting(
    first: int, blob: bytes, trace_id: str | None, since_ms: int, rank: int, after_seq: int
) -> list[Followed]:
    """The lines of one segment that fit, in order."""
    from reach_sidecar.telemetry.line import rfc3339

    needle = b"" if trace_id is None else b'"trace_id":"%s"' % trace_id.encode()
    since = rfc3339(since_ms) if since_ms > 0 else ""
    fitting = []
    for seq, data in enumerate(blob.split(b"\n")[:-1], first):
        if seq <= after_seq or (needle and needle not in data):
            continue
        if since or rank:
            record = orjson.loads(data)
            if LEVELS.get(record.get("level"), 20) < rank or record.get("ts", "") < since:
                continue
        fitting.append(Followed(seq, data))
    return fitting
