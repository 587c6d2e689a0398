"""The table of all agents: a join-semilattice, so every node that has heard the same entries holds the same
table.

Per agent the entry with the larger `(gen, ver, rank, digest)` stays; order, repetition and batching of what
arrives do not matter (within the bounds). Removal is an entry too, a tombstone, which holds its place for 24
h so that an older live entry still under way cannot bring the agent back.

Two nodes compare by `hash`, then by the 256 `buckets()`, then by the digests in a bucket. `seq` is local: it
numbers the changes of this table object, so that a reader who has seen `seq` gets only what came later
(`delta_since`).
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from reach_core.peer import DIGEST_BYTES, MAX_ENTRY_BYTES, TOMBSTONE_LIFE_MS, Entry

BUCKETS = 256
MAX_ENTRIES = 20_000
MAX_TOMBSTONES = 50_000
MAX_AHEAD_MS = 24 * 3600 * 1000
"""A `gen` further ahead of now than this comes from a broken clock and would win for ever: refused."""


class Change(NamedTuple):
    """`before` is None for an agent not known until now; `after` may be a tombstone."""

    before: Entry | None
    after: Entry


def bucket_of(agent_id: str) -> int:
    """0 to 255, the same on every node."""
    return blake2b(agent_id.encode(), digest_size=1).digest()[0]


class PeerTable:
    """Entries by agent id. `refused` counts what was not taken: ahead, too_large, expired, full."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self.seq = 0
        self.refused: Counter[str] = Counter()
        self._max_entries = max_entries
        self._max_tombstones = max_tombstones
        self._entries: dict[str, Entry] = {}
        self._changed: dict[str, int] = {}  # agent id -> seq of its last change, in that order
        self._deadlines: list[tuple[int, str]] = []  # heap of tombstones; stale pairs are skipped when met
        self._tombstones = 0
        self._members: list[set[str]] = [set() for _ in range(BUCKETS)]
        self._bucket_hashes: list[bytes | None] = [None] * BUCKETS
        self._root: str | None = None

    def merge(self, entries: Iterable[Entry], now_ms: int) -> list[Change]:
        """Take what is newer; what changed, in order. `now_ms` (wall clock) only refuses the unsound."""
        changes = []
        for entry in entries:
            before = self._entries.get(entry.agent_id)
            if before is not None and entry.order <= before.order:
                continue
            if reason := self._why_not(entry, before, now_ms):
                self.refused[reason] += 1
                continue
            self._put(before, entry)
            changes.append(Change(before, entry))
        while self._tombstones > self._max_tombstones:
            self._drop_oldest_tombstone()
        return changes

    def get(self, agent_id: str) -> Entry | None:
        """The entry, a tombstone included."""
        return self._entries.get(agent_id)

    def entries(self, tombstones: bool = False) -> Iterator[Entry]:
        return (entry for entry in self._entries.values() if tombstones or not entry.is_tombstone)

    def __iter__(self) -> Iterator[Entry]:
        return self.entries()

    def __len__(self) -> int:
        """Live entries, tombstones not counted."""
        return len(self._entries) - self._tombstones

    def __bool__(self) -> bool:
        return True  # an empty table is a table, also where one is optional

    @property
    def tombstones(self) -> int:
        return self._tombstones

    def delta_since(self, seq: int, upto: int | None = None) -> list[Entry] | None:
        """Every entry changed after `seq`, oldest first, tombstones included; None if `seq` is not ours.

        `delta_since(0)` is the whole table. With `upto`, entries whose latest change is past it are left out:
        they come with a later delta.
        """
        if not 0 <= seq <= self.seq:
            return None
        last = self.seq if upto is None else upto
        newer = []
        for agent_id in reversed(self._changed):
            if self._changed[agent_id] <= seq:
                break
            if self._changed[agent_id] <= last:
                newer.append(self._entries[agent_id])
        newer.reverse()
        return newer

    @property
    def hash(self) -> str:
        """Root hash over all entries and tombstones, hex: equal tables have equal hashes."""
        if self._root is None:
            self._root = blake2b(b"".join(self.buckets()), digest_size=DIGEST_BYTES).hexdigest()
        return self._root

    def buckets(self) -> list[bytes]:
        """256 hashes; an agent belongs to bucket `bucket_of(agent_id)`."""
        return [self._bucket_hash(number) for number in range(BUCKETS)]

    def digests(self, bucket: int) -> dict[str, bytes]:
        """Digest by agent id of one bucket: the last step of a comparison."""
        return {agent_id: self._entries[agent_id].digest for agent_id in self._members[bucket]}

    def expire(self, now_ms: int) -> int | None:
        """Drop the tombstones whose deadline has passed; the next deadline (ms), if there is one."""
        while self._deadlines:
            expires_ms, agent_id = self._deadlines[0]
            if self._is_stale(expires_ms, agent_id):
                heapq.heappop(self._deadlines)
            elif expires_ms <= now_ms:
                self._drop_oldest_tombstone()
            else:
                return expires_ms
        return None

    def _why_not(self, entry: Entry, before: Entry | None, now_ms: int) -> str | None:
        if entry.gen > now_ms + MAX_AHEAD_MS:
            return "ahead"
        if len(entry.encoded) > MAX_ENTRY_BYTES:
            return "too_large"
        if entry.expires_ms is not None:
            if entry.expires_ms <= now_ms:
                return "expired"  # others have dropped it; taking it would hand it round for ever
            return "ahead" if entry.expires_ms > now_ms + MAX_AHEAD_MS + TOMBSTONE_LIFE_MS else None
        if (before is None or before.is_tombstone) and len(self) >= self._max_entries:
            return "full"
        return None

    def _put(self, before: Entry | None, entry: Entry) -> None:
        agent_id = entry.agent_id
        self._entries[agent_id] = entry
        self.seq += 1
        self._changed.pop(agent_id, None)
        self._changed[agent_id] = self.seq
        if before is not None and before.is_tombstone:
            self._tombstones -= 1
        if entry.expires_ms is not None:
            self._tombstones += 1
            heapq.heappush(self._deadlines, (entry.expires_ms, agent_id))
        bucket = bucket_of(agent_id)
        self._members[bucket].add(agent_id)
        self._bucket_hashes[bucket] = self._root = None

    def _is_stale(self, expires_ms: int, agent_id: str) -> bool:
        entry = self._entries.get(agent_id)
        return entry is None or entry.expires_ms != expires_ms

    def _drop_oldest_tombstone(self) -> None:
        while True:
            expires_ms, agent_id = heapq.heappop(self._deadlines)
            if not self._is_stale(expires_ms, agent_id):
                break
        del self._entries[agent_id], self._changed[agent_id]
        self._tombstones -= 1
        bucket = bucket_of(agent_id)
        self._members[bucket].discard(agent_id)
        self._bucket_hashes[bucket] = self._root = None

    def _bucket_hash(self, number: int) -> bytes:
        known = self._bucket_hashes[number]
        if known is None:
            digests = sorted(self._entries[agent_id].digest for agent_id in self._members[number])
            known = blake2b(b"".join(digests), digest_size=DIGEST_BYTES).digest()
            self._bucket_hashes[number] = known
        return known
