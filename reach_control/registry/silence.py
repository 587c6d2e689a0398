"""What silence brings: a lease that ran out, a second look, and only then a suspicion.

overdue -> (looks) -> seen by anyone: the lease goes on for one heartbeat more
                   -> seen by nobody: suspect; while expiry stands still (preservation) only if that is confirmed
suspect -> down -> a tombstone, by the clock alone, which stands still as well, except for those confirmed gone.

A tick does a bounded amount of work, so twenty thousand leases that run out at once do not stop the node: what is left
comes with the next tick, which is due at once then.
"""

from math import inf
from random import Random
from typing import NamedTuple

import msgspec

from reach_control.registry.damping import Damping
from reach_control.registry.lease import Lease, Moment, next_step
from reach_control.registry.ledger import Ledger
from reach_control.registry.look import NOBODY, Look, Looks, Sighting
from reach_control.registry.preservation import Preservation
from reach_core.peer import Entry, Rank
from reach_core.table import Change

STALL_S = 5.0
TICK_S = 1.0
"""A lapse is noticed within a second, and a stall seen as one: tick at least this often."""
MOST_DUE = 1_000
MOST_CHANGES = 200


class Passed(NamedTuple):
    """What time brought, what has to be looked at, and the seconds until the next time (at most TICK_S)."""

    changes: list[Change]
    looks: list[Look]
    next_s: float


class Silence:
    """Owns the looks and the preservation of `ledger`."""

    def __init__(self, ledger: Ledger, damping: Damping, random: Random, now_s: float) -> None:
        self.stalls = 0
        self.preservation = Preservation(ledger.terms.ttl_s)
        self._ledger = ledger
        self._damping = damping
        self._looks = Looks(random)
        self._awake_s = now_s

    def pass_time(self, now: Moment) -> Passed:
        self._notice_stall(now.s)
        ledger, changes = self._ledger, []
        for lease, entry in ledger.due(now.s, MOST_DUE):
            changes += self._step(lease, entry, now)
            if len(changes) >= MOST_CHANGES:
                break
        for agent_id, gen in self._looks.lost(now.s):
            changes += self.looked(agent_id, gen, NOBODY, now)
        # While lapses are still being counted it is not known yet whether they are this node's own fault.
        looks = self._start_looks(now.s) if ledger.next_due_s() > now.s else []
        ledger.table.expire(now.ms)
        return Passed(changes, looks, min(TICK_S, max(0.0, ledger.next_due_s() - now.s)))

    def looked(self, agent_id: str, gen: int, sighting: Sighting, now: Moment) -> list[Change]:
        """A look came back."""
        self._notice_stall(now.s)
        held = self._ledger.live(agent_id)
        if not self._looks.finish(agent_id, gen) or held is None:
            return []
        lease, entry = held
        if lease.gen != gen or not lease.is_overdue:
            return []
        heartbeat_s = self._ledger.terms.heartbeat_s
        if sighting.is_alive:
            lease.renewed_s = max(lease.renewed_s, now.s - self._ledger.terms.ttl_s + heartbeat_s)
            self.back(lease, entry)
            return []
        if sighting.is_confirmed_death:
            lease.is_gone = True
            self.preservation.back(agent_id)
        elif self.frozen(now.s) is not None:
            self._ledger.wake(lease, now.s + heartbeat_s)
            return []
        lease.is_overdue = False
        lease.suspected_s = now.s
        if entry.rank == Rank.UP:
            self._damping.fell(agent_id, now.s)
        return self._turn(lease, entry, Rank.SUSPECT, now)

    def frozen(self, now_s: float) -> str | None:
        return self.preservation.frozen(now_s, len(self._ledger.leases))

    def back(self, lease: Lease, entry: Entry) -> None:
        """The agent was heard of or seen: whatever was being found out about it is no longer of interest."""
        lease.is_gone = False
        if lease.is_overdue:
            lease.is_overdue = False
            self._looks.drop(lease.agent_id)
        self.preservation.back(lease.agent_id)
        self._ledger.schedule(lease, entry.rank)

    def end(self, agent_id: str) -> None:
        """The lease ends, or another takes its place."""
        self._looks.drop(agent_id)
        self.preservation.back(agent_id)
        self._ledger.drop(agent_id)

    # -- steps

    def _notice_stall(self, now_s: float) -> None:
        stalled_s = now_s - self._awake_s - TICK_S
        self._awake_s = max(self._awake_s, now_s)
        if stalled_s <= STALL_S:
            return
        self.stalls += 1
        self._looks.make_void()
        self.preservation.grant(
            f"This node stood still for {stalled_s:.0f} s: agents get one lease to be heard of.", now_s
        )
        for lease in self._ledger.leases.values():  # nobody could renew in that time
            lease.renewed_s = min(now_s, lease.renewed_s + stalled_s)

    def _step(self, lease: Lease, entry: Entry, now: Moment) -> list[Change]:
        if -inf < lease.held_until_s <= now.s:
            lease.held_until_s = -inf
            if lease.is_heard(now.s, self._ledger.terms) and entry.rank == Rank.SUSPECT:
                return self._release(lease, entry, now)
        step = next_step(entry.rank, lease, self._ledger.terms)
        if step.due_s > now.s:  # renewed since
            self._ledger.schedule(lease, entry.rank)
            return []
        if step.rank == Rank.SUSPECT:
            if not lease.is_overdue:
                lease.is_overdue = True
                self.preservation.lapsed(lease.agent_id, now.s)
            self._looks.want(lease.agent_id)
            return []
        if not lease.is_gone and self.frozen(now.s) is not None:
            self._ledger.wake(lease, now.s + self._ledger.terms.heartbeat_s)
            return []
        if step.rank >= Rank.LEFT:
            return self._forget(lease, entry, now)
        return self._turn(lease, entry, step.rank, now)

    def _turn(self, lease: Lease, entry: Entry, rank: Rank, now: Moment) -> list[Change]:
        self._ledger.schedule(lease, rank)
        return self._ledger.write(msgspec.structs.replace(entry, rank=rank), now).changes

    def _forget(self, lease: Lease, entry: Entry, now: Moment) -> list[Change]:
        changes = self._ledger.write(entry.tombstone(now.ms), now).changes
        if changes:
            self.end(lease.agent_id)
        else:  # the wall clock is off by days: the table takes nothing for true that it says
            self._ledger.wake(lease, now.s + self._ledger.terms.heartbeat_s)
        return changes

    def _release(self, lease: Lease, entry: Entry, now: Moment) -> list[Change]:
        """It was held long enough and is still heard of."""
        self._damping.released(lease.agent_id, now.s)
        rank = Rank.UP if lease.confirmed else Rank.JOINING
        self._ledger.schedule(lease, rank)
        return self._ledger.write(msgspec.structs.replace(entry, ver=entry.ver + 1, rank=rank), now).changes

    def _start_looks(self, now_s: float) -> list[Look]:
        looks: list[Look] = []
        while (agent_id := self._looks.next(now_s)) is not None:
            held = self._ledger.live(agent_id)
            if held is None or not held[0].is_overdue:
                continue
            gen = held[1].gen
            self._looks.start(agent_id, gen, now_s)
            witnesses = self._looks.witnesses(self._ledger.table, agent_id, self._is_silent)
            looks.append(Look(agent_id, gen, held[1].address, witnesses))
        return looks

    def _is_silent(self, agent_id: str) -> bool:
        lease = self._ledger.leases.get(agent_id)
        return lease is None or lease.is_overdue
