"""The registry: registrations, renewals, leaves and lapses, turned into entries of the table.

Each request is decided at once, without waiting, and says what changed; `tick` does what time alone brings and says
what has to be asked of the world. Its parts share one ledger (the table with its leases): who owns an agent
(`ownership`), what silence makes of it (`silence`), what other control nodes know (`elsewhere`), and which agents
callers complain about (`reports`).

Expiry can only be trusted while this node itself is awake and sees most agents: see `preservation`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import msgspec

from reach_control.registry.damping import Damping
from reach_control.registry.elsewhere import Elsewhere
from reach_control.registry.lease import Moment, Terms
from reach_control.registry.ledger import Ledger, Outcome, Sign
from reach_control.registry.look import Look, Sighting
from reach_control.registry.ownership import Ownership
from reach_control.registry.reports import Probe, Reports
from reach_control.registry.silence import Silence
from reach_core.messages import HeartbeatRequest, LeaveRequest, Load, RegisterRequest, Renewal
from reach_core.peer import Entry, Rank
from reach_core.table import Change, PeerTable

MOST_PROBES = 64
MOST_RENEWALS = 2_000


class Tick(NamedTuple):
    """What time brought; second looks and health checks to be made now; the seconds until the next tick."""

    changes: list[Change]
    looks: list[Look]
    probes: list[Probe]
    next_s: float


def unsigned(entry: Entry) -> Entry:
    """For a mesh without keys."""
    return entry


class Registry:
    """`table` is read by everyone and changed through the registry only. `sign` gives an entry its signature."""

    def __init__(
        self, cluster: str, terms: Terms, table: PeerTable, now: Moment, random: Random, *, sign: Sign = unsigned
    ) -> None:
        self.table = table
        self._ledger = Ledger(table, terms, sign)
        self._silence = Silence(self._ledger, damping := Damping(terms.cooldown_s), random, now.s)
        self._ownership = Ownership(cluster, self._ledger, self._silence, damping)
        self._elsewhere = Elsewhere(self._ledger, self._silence, damping)
        self._reports = Reports()

    def restore(self, entries: Iterable[Entry], now: Moment) -> None:
        """Go on with what an earlier process had noted: every lease starts anew."""
        self.table.merge([self._ledger.sign(entry) for entry in entries], now.ms)
        for entry in self.table:
            if entry.agent_id not in self._ledger.leases:
                self._ledger.hold(entry, now.s, entry.rank >= Rank.UP)
        if self._ledger.leases:
            self._silence.preservation.grant("This node has just started: agents get one lease to be heard of.", now.s)

    def register(self, request: RegisterRequest, now: Moment) -> Outcome:
        """Raises Problem: `agent_id_conflict`, `bad_request`, `not_allowed`, the latter also when the table is full."""
        return self._ownership.register(request, now)

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Outcome:
        """Renew. Raises Problem: `register_again`, `agent_id_conflict`. The answer may have a newer `gen`."""
        outcome = self._ownership.heartbeat(request, now)
        known = {one: failures for one, failures in request.failures.items() if one in self._ledger.leases}
        self._reports.told(request.agent_id, known, now.s)
        return outcome

    def leave(self, request: LeaveRequest, now: Moment) -> list[Change]:
        """Remove the agent now; one that is not here has left already. Raises Problem `agent_id_conflict`."""
        return self._ownership.leave(request, now)

    def tick(self, now: Moment) -> Tick:
        """What silence brought until now. Call again after `next_s` seconds at the latest, and answer each look by
        `looked`."""
        changes, looks, next_s = self._silence.pass_time(now)
        return Tick(changes, looks, self._probes(now.s), next_s)

    def looked(self, agent_id: str, gen: int, sighting: Sighting, now: Moment) -> list[Change]:
        """What a second look showed."""
        return self._silence.looked(agent_id, gen, sighting, now)

    def resign(self, is_old: Callable[[Entry], bool], most: int, now: Moment) -> list[Change]:
        """Sign anew, with a new `ver`, up to `most` entries of which `is_old` says that their key is to go, tombstones
        included. Suspicions are left as they are: with a new `ver` nobody would contradict them."""
        changes: list[Change] = []
        for entry in list(self.table.entries(tombstones=True)):
            if entry.rank in (Rank.SUSPECT, Rank.DOWN) or not is_old(entry):
                continue
            changes += self._ledger.write(msgspec.structs.replace(entry, ver=entry.ver + 1), now).changes
            if len(changes) >= most:
                break
        return changes

    def begin_anew(self) -> list[Change]:
        """Forget everything: this node was away for so long that it must not tell what it knew."""
        for agent_id in list(self._ledger.leases):
            self._silence.end(agent_id)
        return self.table.clear()

    def frozen(self, now: Moment) -> str | None:
        """Why expiry by the clock stands still, in a sentence; None if it does not."""
        return self._silence.frozen(now.s)

    # -- other control nodes

    def meet(self, entries: Iterable[Entry], now: Moment, *, is_hearsay: bool = False) -> list[Change]:
        """Merge verified entries of other nodes, and contradict where this node knows better; all changes, in order.
        `is_hearsay`: a sidecar has them, and no other control node says so."""
        return self._elsewhere.meet(entries, now, is_hearsay)

    def hear(self, renewals: Iterable[Renewal], now: Moment) -> list[Change]:
        """Heartbeats that another node took: they extend leases here."""
        return self._elsewhere.hear(renewals, now)

    def renewals(self, mark: int, now: Moment, most: int = MOST_RENEWALS) -> tuple[int, list[Renewal]]:
        """Agents heard of here since `mark` (0 at first), earliest first, and the mark to go on from."""
        mark, agent_ids = self._ledger.heard_since(mark, most)
        renewals = []
        for agent_id in agent_ids:
            lease = self._ledger.leases[agent_id]
            load = lease.load or Load()
            renewals.append(
                Renewal(
                    agent_id,
                    lease.gen,
                    max(0.0, now.s - lease.heard_s),
                    lease.confirmed,
                    load.running,
                    load.queued,
                    load.limit,
                )
            )
        return mark, renewals

    def has_renewals(self, mark: int) -> bool:
        return self._ledger.heartbeats > mark

    # -- what is known

    @property
    def terms(self) -> Terms:
        return self._ledger.terms

    @terms.setter
    def terms(self, terms: Terms) -> None:
        self._ledger.terms = terms
        self._silence.preservation.window_s = terms.ttl_s

    @property
    def stalls(self) -> int:
        return self._silence.stalls

    def load_of(self, agent_id: str, now_s: float) -> Load | None:
        """As of the owner's last heartbeat; `age_s` says how old it is."""
        lease = self._ledger.leases.get(agent_id)
        if lease is None or lease.load is None:
            return None
        return msgspec.structs.replace(lease.load, age_s=round(max(0.0, now_s - lease.load_s), 3))

    def silent_s(self, agent_id: str, now_s: float) -> float | None:
        """Seconds since the owner was last heard of, or since the lease was granted; None for one without a lease."""
        lease = self._ledger.leases.get(agent_id)
        if lease is None:
            return None
        return max(0.0, now_s - (lease.heard_s if lease.heard_s > 0 else lease.renewed_s))

    def count_by_status(self) -> Counter[str]:
        return Counter(entry.rank.label for entry in self.table)

    def _probes(self, now_s: float) -> list[Probe]:
        probes = []
        for agent_id in self._reports.due(now_s, MOST_PROBES):
            held = self._ledger.live(agent_id)
            if held is not None and held[1].rank <= Rank.UP and not held[1].unfit:
                probes.append(Probe(agent_id, held[1].gen, held[1].address))
        return probes
