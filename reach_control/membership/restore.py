"""What an earlier process had noted becomes the table, unless that is so old that others know better.

A tombstone is remembered for a day. A node that was away for half of one may hold agents whose removal the others begin
to forget, so it takes their table if it can reach one of them, and its own otherwise (design, "Control plane and the
table"). Entries that nobody's known key vouches for are signed anew: the identity was lost, or an earlier version wrote
them.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec

from reach_control.identity.keys import NodeKeys
from reach_control.journal.snapshot import Snapshot
from reach_control.registry.lease import Moment
from reach_control.registry.registry import Registry
from reach_control.telemetry.log import ControlLog
from reach_core.gossip.absence import MAX_AWAY_S
from reach_core.peer import Entry


async def restore(snapshot: Snapshot, registry: Registry, keys: NodeKeys, now: Moment,
                  reach_others: Callable[[], Awaitable[bool]], log: ControlLog) -> int:
    """Open `snapshot` and fill the table; up to which change it is on disk. Raises SnapshotError."""
    away_s = _seconds_since_written(snapshot.path)
    noted = await snapshot.open(now.ms)
    entries = noted.entries
    if away_s > MAX_AWAY_S and entries and await reach_others():
        entries = []
        await snapshot.clear()
        detail = f"Nothing was noted for {away_s / 3600:.0f} h: the table is taken from another control node."
        log.event("warn", "restored", detail=detail)
    registry.restore([entry for entry in entries if keys.keyring.knows(entry)], now)
    on_disk = registry.table.seq
    registry.meet(_signed_anew(entries, keys, now.ms), now)
    if noted.unreadable:
        detail = f"{noted.unreadable} entries on disk could not be read; their agents will register again."
        log.event("warn", "restored", detail=detail)
    log.event("info", "restored", detail=f"{len(registry.table)} agents from {snapshot.path}")
    return on_disk


def _signed_anew(entries: list[Entry], keys: NodeKeys, now_ms: int) -> Iterator[Entry]:
    """Those of no known key, with a new version, so that the new signature gets around."""
    signer = keys.signer(now_ms)
    for entry in entries:
        if not keys.keyring.knows(entry):
            newer = entry if entry.is_tombstone else msgspec.structs.replace(entry, ver=entry.ver + 1)
            yield signer.sign(newer)


def _seconds_since_written(path: Path) -> float:
    """By the wall clock; 0 if there is nothing."""
    times = [one.stat().st_mtime for one in (path, path.with_name(path.name + "-wal")) if one.exists()]
    return max(0.0, time.time() - max(times)) if times else 0.0
