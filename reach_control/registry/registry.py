"""The registry: registrations, renewals, leaves and lapses, turned into entries of the table.

Each request is decided at once, without waiting, and says what changed; `tick` does what time alone brings.
An agent's owner is a process (`instance`); while its lease runs nobody else gets the id, unless by
`takeover`. `gen` is issued here and grows with each registration, so the larger one wins everywhere; `ver`
grows when the owner changes something or contradicts a suspicion. Bad news (suspect, down) needs neither:
within a `ver` the larger rank wins.

Expiry can only be trusted while this node itself is awake: after a restart every lease is granted in full,
and when the clock jumps over STALL_S between two ticks, nobody could renew in that time, so all leases get it
added.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import msgspec

from reach_control.registry.declaration import entry_of, known_flags
from reach_control.registry.lease import Lease, Moment, Terms, next_step
from reach_core.messages import HeartbeatRequest, LeaveRequest, Load, RegisterRequest
from reach_core.peer import UNFIT, Entry, Rank
from reach_core.problem import Problem
from reach_core.table import MAX_AHEAD_MS, Change, PeerTable

STALL_S = 5.0
TICK_S = 1.0
"""A lapse is noticed within a second, and a stall seen as one: tick at least this often."""


class Outcome(NamedTuple):
    """The entry as it is now, and what changed in the table for it to be so."""

    entry: Entry
    changes: list[Change]


class Tick(NamedTuple):
    """What time brought, and the seconds until the next tick (at most TICK_S)."""

    changes: list[Change]
    next_s: float


class Registry:
    """`table` is read by everyone and changed through the registry only."""

    def __init__(self, cluster: str, terms: Terms, table: PeerTable, now: Moment) -> None:
        self.table = table
        self.terms = terms
        self.stalls = 0
        self._cluster = cluster
        self._leases: dict[str, Lease] = {}
        self._due: list[tuple[float, str]] = []  # heap; a pair that is not its lease's `due_s` is stale
        self._ticked_s = now.s

    def restore(self, entries: Iterable[Entry], instances: dict[str, str], now: Moment) -> None:
        """Go on with what an earlier process had noted: every lease starts anew."""
        self.table.merge(entries, now.ms)
        for entry in self.table:
            if entry.agent_id not in self._leases:
                instance = instances.get(entry.agent_id, "")
                self._hold(Lease(entry.agent_id, instance, now.s, confirmed=entry.rank >= Rank.UP), entry)

    def register(self, request: RegisterRequest, now: Moment) -> Outcome:
        """Raises Problem: `agent_id_conflict`, `bad_request`, `not_allowed` when the table is full."""
        before = self.table.get(request.agent_id)
        lease = self._leases.get(request.agent_id)
        if lease is not None and not request.takeover:
            self._check_owner(lease, request.instance, now, replaceable=True)
        fit = request.healthy and UNFIT not in request.flags
        same = before is not None and lease is not None and request.gen == before.gen
        if before is not None and lease is not None and same and lease.instance == request.instance:
            entry = self._changed_by_owner(before, lease, request, fit)
        else:
            gen = self._issue_gen(before, request.gen, now)
            entry = entry_of(request, self._cluster, gen, 1, Rank.UP if fit else Rank.JOINING)
        changes = self._merge(entry, now)
        if lease is None or lease.instance != request.instance or (changes and not same):
            lease = Lease(request.agent_id, request.instance, now.s)
            self._hold(lease, entry)
        lease.confirmed = lease.confirmed or fit
        self._renew(lease, request.load, now)
        return Outcome(entry, changes)

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Outcome:
        """Renew. Raises Problem: `register_again`, `agent_id_conflict`."""
        lease = self._leases.get(request.agent_id)
        before = self.table.get(request.agent_id)
        if lease is None or before is None or before.is_tombstone:
            raise Problem(
                "register_again", f"{request.agent_id} is not registered here. Register it again with its declaration."
            )
        self._check_owner(lease, request.instance, now, replaceable=False)
        lease.instance = request.instance
        self._renew(lease, request.load, now)
        flags = known_flags(request.flags)
        lease.confirmed = lease.confirmed or (request.healthy and UNFIT not in flags)
        rank = Rank.UP if lease.confirmed else Rank.JOINING
        behind = request.gen == before.gen and request.ver > before.ver
        if flags != before.flags or before.rank >= Rank.SUSPECT or behind:
            ver = _next_ver(before, request.gen, request.ver)
            entry = msgspec.structs.replace(before, ver=ver, rank=rank, flags=flags)
        elif rank > before.rank:
            entry = msgspec.structs.replace(before, rank=rank)
        else:
            return Outcome(before, [])
        changes = self._merge(entry, now)
        self._schedule(lease, entry)
        return Outcome(entry, changes)

    def leave(self, request: LeaveRequest, now: Moment) -> list[Change]:
        """Remove the agent now; one that is not here has left already. Raises Problem `agent_id_conflict`."""
        lease = self._leases.get(request.agent_id)
        if lease is None:
            return []
        self._check_owner(lease, request.instance, now, replaceable=False)
        return self._remove(request.agent_id, now)

    def tick(self, now: Moment) -> Tick:
        """What silence brought until now. Call again after `next_s` seconds at the latest."""
        stalled_s = now.s - self._ticked_s - TICK_S
        self._ticked_s = now.s
        if stalled_s > STALL_S:
            self.stalls += 1
            for lease in self._leases.values():
                lease.renewed_s = min(now.s, lease.renewed_s + stalled_s)
        changes: list[Change] = []
        while self._due and self._due[0][0] <= now.s:
            due_s, agent_id = heapq.heappop(self._due)
            held, entry = self._leases.get(agent_id), self.table.get(agent_id)
            if held is not None and entry is not None and held.due_s == due_s:
                held.due_s = inf
                changes += self._lapse(held, entry, now)
        self.table.expire(now.ms)
        wait_s = self._due[0][0] - now.s if self._due else TICK_S
        return Tick(changes, min(TICK_S, max(0.0, wait_s)))

    def load_of(self, agent_id: str, now_s: float) -> Load | None:
        """As of the owner's last heartbeat; `age_s` says how old it is."""
        lease = self._leases.get(agent_id)
        if lease is None or lease.load is None:
            return None
        return msgspec.structs.replace(lease.load, age_s=round(max(0.0, now_s - lease.load_s), 3))

    def silent_s(self, agent_id: str, now_s: float) -> float | None:
        """Seconds since the owner was last heard of; None for an agent without a lease here."""
        lease = self._leases.get(agent_id)
        return None if lease is None else max(0.0, now_s - lease.renewed_s)

    def instance_of(self, agent_id: str) -> str:
        lease = self._leases.get(agent_id)
        return lease.instance if lease is not None else ""

    def count_by_status(self) -> Counter[str]:
        return Counter(entry.rank.label for entry in self.table)

    # -- steps

    def _check_owner(self, lease: Lease, instance: str, now: Moment, replaceable: bool) -> None:
        if lease.instance in (instance, "") or (replaceable and not lease.runs(now.s, self.terms)):
            return
        raise Problem(
            "agent_id_conflict",
            f"Another process is registered as {lease.agent_id} and was heard of "
            f"{max(0.0, now.s - lease.renewed_s):.0f} s ago. Give this one another id, or stop the other and wait "
            f"until its lease of {self.terms.ttl_s:.0f} s has run out.",
            agent=lease.agent_id,
        )

    def _issue_gen(self, before: Entry | None, had: int, now: Moment) -> int:
        """Larger than any seen for this id. `had` counts too: this node may have lost its notes."""
        highest = before.gen if before is not None else 0
        if had < now.ms + MAX_AHEAD_MS:
            highest = max(highest, had)
        return max(now.ms, highest + 1)

    def _changed_by_owner(self, before: Entry, lease: Lease, request: RegisterRequest, fit: bool) -> Entry:
        rank = Rank.UP if lease.confirmed or fit else Rank.JOINING
        same = entry_of(request, self._cluster, before.gen, before.ver, before.rank)
        if same == before and before.rank <= rank and request.ver <= before.ver:
            return msgspec.structs.replace(before, rank=rank) if rank > before.rank else before
        ver = _next_ver(before, request.gen, request.ver)
        return msgspec.structs.replace(same, ver=ver, rank=rank)

    def _lapse(self, lease: Lease, entry: Entry, now: Moment) -> list[Change]:
        step = next_step(entry.rank, lease, self.terms)
        if step.due_s > now.s:  # renewed since
            self._schedule(lease, entry)
            return []
        if step.rank >= Rank.LEFT:
            return self._remove(lease.agent_id, now)
        lapsed = msgspec.structs.replace(entry, rank=step.rank)
        self._schedule(lease, lapsed)
        return self.table.merge([lapsed], now.ms)

    def _remove(self, agent_id: str, now: Moment) -> list[Change]:
        del self._leases[agent_id]
        entry = self.table.get(agent_id)
        return [] if entry is None else self.table.merge([entry.tombstone(now.ms)], now.ms)

    def _renew(self, lease: Lease, load: Load | None, now: Moment) -> None:
        lease.renew(now.s)
        if load is not None:
            lease.load, lease.load_s = load, now.s

    def _hold(self, lease: Lease, entry: Entry) -> None:
        self._leases[lease.agent_id] = lease
        self._schedule(lease, entry)

    def _schedule(self, lease: Lease, entry: Entry) -> None:
        """Look at the lease when its next step is due; a renewal only moves that further, so it costs nothing."""
        due_s = next_step(entry.rank, lease, self.terms).due_s
        if due_s < lease.due_s:
            lease.due_s = due_s
            heapq.heappush(self._due, (due_s, lease.agent_id))

    def _merge(self, entry: Entry, now: Moment) -> list[Change]:
        """Raises Problem where the table refuses the entry: nobody would see it."""
        before = self.table.refused.copy()
        changes = self.table.merge([entry], now.ms)
        for reason in self.table.refused - before:
            raise self._not_taken(entry, reason)
        return changes

    def _not_taken(self, entry: Entry, reason: str) -> Problem:
        if reason == "full":
            detail = f"The mesh is full: it has {len(self.table)} agents. Remove some, or start a second mesh."
            return Problem("not_allowed", detail)
        if reason == "ahead":
            detail = (
                f"The latest registration of {entry.agent_id} was made more than a day after what this node's clock "
                "says now. Set the clock of this machine right, or give the agent another id."
            )
            return Problem("agent_id_conflict", detail, agent=entry.agent_id)
        return Problem("bad_request", f"The table does not take the entry of {entry.agent_id}: {reason}.")


def _next_ver(before: Entry, gen: int, ver: int) -> int:
    """Above what is known here and what the owner was told for this gen."""
    return max(before.ver, ver if gen == before.gen else 0) + 1
