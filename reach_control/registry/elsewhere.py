"""What other control nodes know: their entries are met, their heartbeats heard.

Any node may lose sight of an agent that another still hears. The one that hears it contradicts at once: a suspicion of
the very entry it has gets a new `ver`, and a tombstone made by silence (same `gen` and `ver`: an owner's leave has a
larger one) is answered with the agent's next `gen`. That is `gen + 1` and not the time, so that two nodes that answer
write the same, and a registration made elsewhere meanwhile stays the larger. A suspicion with a larger `ver` than ours
was made by a node that had heard the owner, and holds the agent back on purpose: it stays.

Not only heartbeats are signs of life: a larger `gen` or `ver` means that somebody heard the owner, so the lease starts
anew, in full. But only a heartbeat is a reason to contradict.
"""

from collections.abc import Iterable
from math import inf

import msgspec

from reach_control.registry.damping import Damping
from reach_control.registry.lease import Lease, Moment
from reach_control.registry.ledger import Ledger
from reach_control.registry.silence import Silence
from reach_core.messages import Load, Renewal
from reach_core.peer import TOMBSTONE_LIFE_MS, Entry, Rank
from reach_core.table import Change


class Elsewhere:
    def __init__(self, ledger: Ledger, silence: Silence, damping: Damping) -> None:
        self._ledger = ledger
        self._silence = silence
        self._damping = damping

    def meet(self, entries: Iterable[Entry], now: Moment, is_hearsay: bool = False) -> list[Change]:
        """Merge these, and answer what is not true; what changed, in order. `is_hearsay`: no control node says so."""
        changes: list[Change] = []
        for entry in entries:
            lease = self._ledger.leases.get(entry.agent_id)
            for change in self._ledger.table.merge([entry], now.ms):
                changes.append(change)
                changes += self._answer(lease, change, now)
                if is_hearsay and change.before is None:
                    self._doubt(change.after, now)
        return changes

    def hear(self, renewals: Iterable[Renewal], now: Moment) -> list[Change]:
        """Heartbeats taken by another node. One for a registration that is not known here is ignored."""
        changes: list[Change] = []
        for renewal in renewals:
            held = self._ledger.live(renewal.agent_id)
            if held is None or held[0].gen != renewal.gen:
                continue
            lease, entry = held
            at_s = now.s - max(0.0, renewal.age_s)
            lease.renew(at_s)
            lease.confirmed = lease.confirmed or renewal.confirmed
            if renewal.limit > 0 and (lease.load is None or at_s > lease.load_s):
                lease.load = Load(running=renewal.running, queued=renewal.queued, limit=renewal.limit)
                lease.load_s = at_s
            if entry.rank >= Rank.SUSPECT and at_s > lease.suspected_s:
                lease.suspected_s = inf
                changes += self._contradict(lease, entry, Rank.UP if lease.confirmed else Rank.JOINING, now)
            elif lease.is_overdue and lease.runs(now.s, self._ledger.terms):
                self._silence.back(lease, entry)
        return changes

    # -- steps

    def _answer(self, lease: Lease | None, change: Change, now: Moment) -> list[Change]:
        before, after = change
        if lease is None or before is None or before.is_tombstone:
            if not after.is_tombstone:
                self._ledger.hold(after, now.s, after.rank >= Rank.UP)
            return []
        is_heard = lease.is_heard(now.s, self._ledger.terms)
        is_same = (after.gen, after.ver) == (before.gen, before.ver)
        if after.is_tombstone:
            if is_heard and is_same and after.rank == Rank.LEFT:
                return self._bring_back(lease, before, now)
            self._silence.end(after.agent_id)
            return []
        if after.gen > before.gen:
            self._silence.end(after.agent_id)
            self._ledger.hold(after, now.s, after.rank >= Rank.UP)
            return []
        if is_same and after.rank >= Rank.SUSPECT and is_heard:
            return self._contradict(lease, after, before.rank, now)
        self._accept(lease, before, after, now.s)
        return []

    def _doubt(self, entry: Entry, now: Moment) -> None:
        """An agent that nobody here knows, registered so long ago that its removal would be forgotten: a sidecar that
        kept the entry may repeat it, so it is looked at now and not after a lease."""
        lease = self._ledger.leases.get(entry.agent_id)
        if lease is not None and entry.gen < now.ms - TOMBSTONE_LIFE_MS:
            lease.renewed_s = min(lease.renewed_s, now.s - self._ledger.terms.ttl_s)
            self._ledger.schedule(lease, entry.rank)

    def _accept(self, lease: Lease, before: Entry, after: Entry, now_s: float) -> None:
        """Another word on the registration that is held here."""
        lease.confirmed = lease.confirmed or after.rank == Rank.UP
        lease.suspected_s = inf
        if after.rank < Rank.SUSPECT:
            lease.held_until_s = -inf
        elif before.rank == Rank.UP:
            self._damping.fell(after.agent_id, now_s)
        if after.ver > before.ver:
            lease.renewed_s = max(lease.renewed_s, now_s)
        if after.ver > before.ver or after.rank >= Rank.SUSPECT:
            self._silence.back(lease, after)
        else:
            self._ledger.schedule(lease, after.rank)

    def _contradict(self, lease: Lease, entry: Entry, rank: Rank, now: Moment) -> list[Change]:
        outcome = self._ledger.write(msgspec.structs.replace(entry, ver=entry.ver + 1, rank=rank), now)
        self._silence.back(lease, outcome.entry)
        return outcome.changes

    def _bring_back(self, lease: Lease, before: Entry, now: Moment) -> list[Change]:
        """The other node lost sight of it, this one did not."""
        outcome = self._ledger.write(msgspec.structs.replace(before, gen=before.gen + 1, ver=1), now)
        if not outcome.changes:
            self._silence.end(lease.agent_id)
            return []
        lease.gen = before.gen + 1
        self._silence.back(lease, outcome.entry)
        return outcome.changes
