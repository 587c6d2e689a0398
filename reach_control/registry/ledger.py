"""The table and the leases, kept in step: there is a lease for each live entry and for nothing else.

Every entry this node makes is written here, signed. Leases wait in a heap for the time they are looked at next; a
renewal only moves that further, so it costs nothing: who is due is then asked whether it has been renewed.
"""

import heapq
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from reach_control.registry.lease import Lease, Moment, Terms, next_step
from reach_core.peer import Entry, Rank
from reach_core.table import Change, PeerTable

Sign = Callable[[Entry], Entry]


class Outcome(NamedTuple):
    """The entry as it is now, and what changed in the table for it to be so."""

    entry: Entry
    changes: list[Change]


class Ledger:
    """`sign` gives an entry its signature."""

    def __init__(self, table: PeerTable, terms: Terms, sign: Sign) -> None:
        self.table = table
        self.terms = terms
        self.leases: dict[str, Lease] = {}
        self.heartbeats = 0  # taken here
        self._sign = sign
        self._due: list[tuple[float, str]] = []  # heap; a pair that is not its lease's `due_s` is stale
        self._heard: dict[str, int] = {}  # agent id -> number of its last heartbeat taken here, in that order

    def live(self, agent_id: str) -> tuple[Lease, Entry] | None:
        lease, entry = self.leases.get(agent_id), self.table.get(agent_id)
        return None if lease is None or entry is None or entry.is_tombstone else (lease, entry)

    def write(self, entry: Entry, now: Moment) -> Outcome:
        """Sign it and put it into the table, which may refuse it: then nothing changes."""
        signed = self._sign(entry)
        return Outcome(signed, self.table.merge([signed], now.ms))

    def sign(self, entry: Entry) -> Entry:
        """With a signature, if it has none."""
        return entry if entry.signature else self._sign(entry)

    def hold(self, entry: Entry, renewed_s: float, confirmed: bool) -> Lease:
        """A new lease for it, in place of any other."""
        lease = Lease(entry.agent_id, entry.gen, renewed_s, confirmed=confirmed)
        self.leases[entry.agent_id] = lease
        self.schedule(lease, entry.rank)
        return lease

    def drop(self, agent_id: str) -> None:
        self.leases.pop(agent_id, None)
        self._heard.pop(agent_id, None)

    # -- time

    def schedule(self, lease: Lease, rank: Rank) -> None:
        """Look at the lease when its next step is due."""
        due_s = next_step(rank, lease, self.terms).due_s
        if lease.held_until_s > -inf:
            due_s = min(due_s, lease.held_until_s)
        self.wake(lease, due_s)

    def wake(self, lease: Lease, due_s: float) -> None:
        """Look at the lease then, if not earlier anyway."""
        if due_s < lease.due_s:
            lease.due_s = due_s
            heapq.heappush(self._due, (due_s, lease.agent_id))

    def due(self, now_s: float, most: int) -> Iterator[tuple[Lease, Entry]]:
        """At most so many leases whose time has come; each has to be scheduled anew."""
        while most > 0 and self._due and self._due[0][0] <= now_s:
            due_s, agent_id = heapq.heappop(self._due)
            held = self.live(agent_id)
            if held is not None and held[0].due_s == due_s:
                most -= 1
                held[0].due_s = inf
                yield held

    def next_due_s(self) -> float:
        return self._due[0][0] if self._due else inf

    # -- heartbeats taken here

    def heard(self, agent_id: str) -> None:
        self.heartbeats += 1
        self._heard.pop(agent_id, None)
        self._heard[agent_id] = self.heartbeats

    def heard_since(self, mark: int, most: int) -> tuple[int, list[str]]:
        """Agents heard of here after `mark`, earliest first and at most so many, and the mark they reach to."""
        later: list[str] = []
        for agent_id in reversed(self._heard):
            if self._heard[agent_id] <= mark:
                break
            later.append(agent_id)
        later.reverse()
        if len(later) > most:
            return self._heard[later[most - 1]], later[:most]
        return self.heartbeats, later
