"""A registry in virtual time, with owners who renew and sidecars that can be looked at. Hours pass in milliseconds."""

import random

from reach_control.registry.lease import Moment, Terms
from reach_control.registry.look import Look, Sighting
from reach_control.registry.registry import Registry
from reach_control.registry.reports import Probe
from reach_core.messages import HeartbeatRequest, LeaveRequest, RegisterRequest
from reach_core.peer import Entry
from reach_core.table import Change, PeerTable

EPOCH_MS = 1_700_000_000_000


class Owners:
    """`reachable`: whom a second look finds; everybody else is found gone by all who look, unless `is_alone`: then
    this node reaches nobody, nor do its witnesses. `is_looking` off: looks are left unanswered.
    """

    def __init__(self, table: PeerTable | None = None, at_s: float = 1000.0, seed: int = 1, ahead_ms: int = 0) -> None:
        self.at_s = at_s
        self.ahead_ms = ahead_ms  # of the true time, as this node's wall clock has it
        self.registry = Registry("local", Terms(), table or PeerTable(), self.now, random.Random(seed))
        self.renewing: dict[str, HeartbeatRequest] = {}
        self.reachable: set[str] = set()
        self.is_alone = False
        self.is_looking = True
        self.looks: list[Look] = []
        self.probes: list[Probe] = []
        self.seen: list[str] = []
        self._beat_s = at_s

    @property
    def now(self) -> Moment:
        return Moment(self.at_s, EPOCH_MS + self.ahead_ms + round(self.at_s * 1000))

    def register(self, agent_id: str = "a", instance: str = "i", healthy: bool = True, **fields: object) -> Entry:
        known = {"agent_id": agent_id, "instance": instance, "address": f"{agent_id}:1", "healthy": healthy}
        return self.registry.register(RegisterRequest(**(known | fields)), self.now).entry  # type: ignore[arg-type]

    def heartbeat(self, agent_id: str = "a", instance: str = "i", healthy: bool = True, **fields: object) -> Entry:
        known = {"agent_id": agent_id, "instance": instance, "healthy": healthy}
        return self.registry.heartbeat(HeartbeatRequest(**(known | fields)), self.now).entry  # type: ignore[arg-type]

    def leave(self, agent_id: str = "a", instance: str = "i") -> None:
        self.registry.leave(LeaveRequest(agent_id=agent_id, instance=instance), self.now)

    def keep(self, *agent_ids: str, instance: str = "i") -> None:
        for agent_id in agent_ids:
            self.renewing[agent_id] = HeartbeatRequest(agent_id=agent_id, instance=instance, healthy=True)

    def fill(self, count: int) -> list[str]:
        """So many agents, registered and kept."""
        agent_ids = [f"agent-{n}" for n in range(count)]
        for agent_id in agent_ids:
            self.register(agent_id)
        self.keep(*agent_ids)
        return agent_ids

    def run(self, seconds: float) -> None:
        """Tick as told, look as told, renew every 10 s."""
        end_s = self.at_s + seconds
        while self.at_s < end_s:
            self.at_s = min(end_s, self.at_s + max(self.tick(), 0.001))

    def tick(self) -> float:
        """One tick with all that follows; the seconds until the next."""
        tick = self.registry.tick(self.now)
        assert 0 <= tick.next_s <= 1
        self.note(tick.changes)
        self.looks += tick.looks
        self.probes += tick.probes
        for look in tick.looks if self.is_looking else ():
            self.note(self.registry.looked(look.agent_id, look.gen, self.sighting(look), self.now))
        if self.at_s >= self._beat_s:
            self._beat_s = self.at_s + 10
            for request in self.renewing.values():
                self.note(self.registry.heartbeat(request, self.now).changes)
        return tick.next_s

    def sighting(self, look: Look) -> Sighting:
        if self.is_alone:
            return Sighting(by_control=False)
        alive = look.agent_id in self.reachable
        witnesses = len(look.witnesses)
        return Sighting(alive, witnesses if alive else 0, 0 if alive else witnesses)

    def note(self, changes: list[Change]) -> None:
        self.seen += [f"{change.after.agent_id} {change.after.rank.label}" for change in changes]

    def rank(self, agent_id: str = "a") -> str | None:
        entry = self.registry.table.get(agent_id)
        return entry.rank.label if entry else None

    def entry(self, agent_id: str = "a") -> Entry:
        entry = self.registry.table.get(agent_id)
        assert entry is not None
        return entry
