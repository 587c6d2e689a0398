"""The table of all agents: a join-semilattice, so every node that has heard the same entries holds the same
table.

Per agent the entry with the larger `(gen, ver, rank, digest)` stays; order, repetition and batching of what
arrives do not matter (within the bounds). Removal is an entry too, a tombstone, which holds its place for 24
h so that an older live entry still under way cannot bring the agent back.

Two nodes compare by `hash`, then by the 256 `buckets()`, then by the digests in a bucket. `seq` is local: it
numbers the changes of this table object, so that a reader who has seen `seq` gets only what came later
(`delta_since`).

Entries lie in the buckets they are compared by. A `fork` shares them until one side changes one, so many tables that
hardly differ take the room of one.
"""

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import NamedTuple

from reach_core.peer import DIGEST_BYTES, MAX_ENTRY_BYTES, TOMBSTONE_LIFE_MS, Entry, Order, Rank

BUCKETS = 256
MAX_ENTRIES = 20_000
MAX_TOMBSTONES = 50_000
_SMALL = 256  # agents up to which looking at all of them is quicker than drawing
_TRIES = 64
MAX_AHEAD_MS = 24 * 3600 * 1000
"""A `gen` further ahead of now than this comes from a broken clock and would win for ever: refused."""


class Change(NamedTuple):
    """`before` is None for an agent not known until now; `after` may be a tombstone."""

    before: Entry | None
    after: Entry


@lru_cache(maxsize=32_768)
def bucket_of(agent_id: str) -> int:
    """0 to 255, the same on every node."""
    return blake2b(agent_id.encode(), digest_size=1).digest()[0]


class PeerTable:
    """Entries by agent id. `refused` counts what was not taken: ahead, too_large, expired, full."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_tombstones: int = MAX_TOMBSTONES) -> None:
        self.refused: Counter[str] = Counter()
        self._max_entries = max_entries
        self._max_tombstones = max_tombstones
        self.seq = 0
        self._empty()

    def _empty(self) -> None:
        self._buckets: list[dict[str, Entry]] = [{} for _ in range(BUCKETS)]
        self._is_shared = [False] * BUCKETS  # with a fork: copied before the first change
        self._size = 0
        self._changed: dict[str, int] = {}  # agent id -> seq of its last change, in that order
        self._forgotten_upto = self.seq  # changes up to this one are not in `_changed`
        self._deadlines: list[tuple[int, str]] = []  # heap of tombstones; stale pairs are skipped when met
        self._tombstones = 0
        self._bucket_hashes: list[bytes | None] = [None] * BUCKETS
        self._root: str | None = None

    def fork(self) -> "PeerTable":
        """A table of its own with what is in this one now. It cannot say what changed before."""
        for number in range(BUCKETS):
            self._bucket_hash(number)
        other = PeerTable(self._max_entries, self._max_tombstones)
        other._buckets = self._buckets.copy()
        self._is_shared = [True] * BUCKETS
        other._is_shared = [True] * BUCKETS
        other._size, other._tombstones = self._size, self._tombstones
        other.seq = other._forgotten_upto = self.seq
        other._deadlines = self._deadlines.copy()
        other._bucket_hashes, other._root = self._bucket_hashes.copy(), self._root
        return other

    def forget(self, agent_id: str) -> Change | None:
        """Drop one entry as if it had never been here; what that did, as if the agent had been removed."""
        entry = self.get(agent_id)
        if entry is None:
            return None
        self._remove(entry)
        return None if entry.is_tombstone else Change(entry, entry.tombstone(0))

    def clear(self) -> list[Change]:
        """Forget everything; what that did to live entries, as if each had been removed. For one who was away so long
        that others have forgotten what was removed meanwhile."""
        gone = [Change(entry, entry.tombstone(0)) for entry in self]
        self.seq += 1
        self._empty()
        return gone

    def merge(self, entries: Iterable[Entry], now_ms: int) -> list[Change]:
        """Take what is newer; what changed, in order. `now_ms` (wall clock) only refuses the unsound."""
        changes = []
        for entry in entries:
            before = self._buckets[bucket_of(entry.agent_id)].get(entry.agent_id)
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
        return self._buckets[bucket_of(agent_id)].get(agent_id)

    def entries(self, tombstones: bool = False) -> Iterator[Entry]:
        return (entry for bucket in self._buckets for entry in bucket.values() if tombstones or not entry.is_tombstone)

    def __iter__(self) -> Iterator[Entry]:
        return self.entries()

    def __len__(self) -> int:
        """Live entries, tombstones not counted."""
        return self._size - self._tombstones

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
        if not 0 <= seq <= self.seq or 0 < seq < self._forgotten_upto:
            return None
        last = self.seq if upto is None else upto
        newer = []
        for agent_id in reversed(self._changed):
            if self._changed[agent_id] <= seq:
                break
            if self._changed[agent_id] <= last:
                newer.append(self._buckets[bucket_of(agent_id)][agent_id])
        newer.reverse()
        if seq < self._forgotten_upto:
            return [entry for entry in self.entries(tombstones=True) if entry.agent_id not in self._changed] + newer
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
        return {agent_id: entry.digest for agent_id, entry in self._buckets[bucket].items()}

    def orders(self, bucket: int) -> dict[str, Order]:
        """What is known of each agent of one bucket, and how new that is."""
        return {agent_id: entry.order for agent_id, entry in self._buckets[bucket].items()}

    def random_entries(
        self, k: int, random: Random, exclude: Container[str] = (), most_rank: Rank = Rank.SUSPECT
    ) -> list[Entry]:
        """At most `k` agents, each equally likely, none twice and none of `exclude` or worse off than `most_rank`."""
        found: dict[str, Entry] = {}
        if self._size > _SMALL:
            for entry in self._draw(_TRIES * k, random):
                if entry.rank <= most_rank and entry.agent_id not in exclude:
                    found[entry.agent_id] = entry
                    if len(found) == k:
                        return list(found.values())
        able = [one for one in self.entries() if one.rank <= most_rank and one.agent_id not in exclude]
        return random.sample(able, min(k, len(able)))

    def _draw(self, tries: int, random: Random) -> Iterator[Entry]:
        """Entries drawn from anywhere, some of them twice, without looking at all."""
        widest = _widest(self._size)
        for _ in range(tries):
            bucket = self._buckets[random.randrange(BUCKETS)]
            place = random.randrange(widest)
            if place < len(bucket):  # or else entries of full buckets would be drawn less often
                yield next(islice(bucket.values(), place, None))

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
        number = bucket_of(agent_id)
        self._own(number)[agent_id] = entry
        self._size += before is None
        self.seq += 1
        self._changed.pop(agent_id, None)
        self._changed[agent_id] = self.seq
        if before is not None and before.is_tombstone:
            self._tombstones -= 1
        if entry.expires_ms is not None:
            self._tombstones += 1
            heapq.heappush(self._deadlines, (entry.expires_ms, agent_id))
        self._bucket_hashes[number] = self._root = None

    def _own(self, number: int) -> dict[str, Entry]:
        """The bucket, no longer shared with a fork."""
        if self._is_shared[number]:
            self._is_shared[number] = False
            self._buckets[number] = self._buckets[number].copy()
        return self._buckets[number]

    def _is_stale(self, expires_ms: int, agent_id: str) -> bool:
        entry = self.get(agent_id)
        return entry is None or entry.expires_ms != expires_ms

    def _drop_oldest_tombstone(self) -> None:
        while True:
            expires_ms, agent_id = heapq.heappop(self._deadlines)
            if not self._is_stale(expires_ms, agent_id):
                break
        self._remove(self._buckets[bucket_of(agent_id)][agent_id])

    def _remove(self, entry: Entry) -> None:
        number = bucket_of(entry.agent_id)
        del self._own(number)[entry.agent_id]
        self._changed.pop(entry.agent_id, None)
        self._size -= 1
        self._tombstones -= entry.is_tombstone
        self._bucket_hashes[number] = self._root = None

    def _bucket_hash(self, number: int) -> bytes:
        known = self._bucket_hashes[number]
        if known is None:
            digests = sorted(entry.digest for entry in self._buckets[number].values())
            known = blake2b(b"".join(digests), digest_size=DIGEST_BYTES).digest()
            self._bucket_hashes[number] = known
        return known


def _widest(size: int) -> int:
    """Places to draw from in a bucket of a table of so many entries: practically none is fuller."""
    mean = size / BUCKETS
    return int(mean + 6 * mean**0.5) + 1
