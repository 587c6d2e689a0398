"""Finding stored lines: by trace id, time and level."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

import orjson

from reach_sidecar.telemetry.follow import Followed
from reach_sidecar.telemetry.line import LEVELS, rfc3339
from reach_sidecar.telemetry.segment import SQL, trace_key


class Wanted(NamedTuple):
    """Which lines: of one trace or all, not older than, not below a rank, after a number; the newest `limit`."""

    trace_id: str | None = None
    since_ms: int = 0
    rank: int = 0
    after_seq: int = 0
    limit: int = 10_000


def find(path: Path, wanted: Wanted) -> list[Followed]:
    """The lines that fit, oldest first. Runs on a read-only connection of its own: call it off the loop.

    An absent store has no lines. Raises sqlite3.Error when it cannot be read.
    """
    key = trace_key(wanted.trace_id) if wanted.trace_id is not None else b""
    if (wanted.trace_id is not None and not key) or not path.exists():
        return []
    statement = SQL["find_trace" if key else "find"]
    bounds = {"trace": key, "since_ms": wanted.since_ms, "worst": wanted.rank, "after_seq": wanted.after_seq}
    found: list[Followed] = []
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=2.0)
    try:
        db.execute("PRAGMA mmap_size=1073741824").fetchall()
        # One read transaction: merging moves lines between segments, and must not do so under this query.
        db.execute("BEGIN")
        for (first_seq,) in db.execute(statement, bounds):
            row = db.execute(SQL["lines_of"], (first_seq,)).fetchone()
            if row is not None:
                found += reversed(_fitting(first_seq, row[0], wanted))
            if len(found) >= wanted.limit:
                break
    finally:
        db.close()
    return found[: wanted.limit][::-1]


def _fitting(first_seq: int, blob: bytes, wanted: Wanted) -> list[Followed]:
    """The lines of one segment that fit, in order."""
    needle = b"" if wanted.trace_id is None else b'"trace_id":"%s"' % wanted.trace_id.encode()
    since = rfc3339(wanted.since_ms) if wanted.since_ms > 0 else ""
    fitting = []
    for seq, data in enumerate(blob.split(b"\n")[:-1], first_seq):
        if seq <= wanted.after_seq or needle not in data:
            continue
        if since or wanted.rank:
            record = orjson.loads(data)
            if LEVELS.get(record.get("level"), 20) < wanted.rank or record.get("ts", "") < since:
                continue
        fitting.append(Followed(seq, data))
    return fitting
