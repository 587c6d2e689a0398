"""What a control node does for sidecars: each request decided by the registry, logged, counted, handed on."""

import asyncio
from collections import Counter
from collections.abc import Callable

from reach_control.membership.feed import Feed
from reach_control.registry.lease import Moment
from reach_control.registry.look import NOBODY, Look, Sighting
from reach_control.registry.registry import Registry
from reach_control.registry.reports import Probe
from reach_control.telemetry.log import ControlLog
from reach_core.messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaveAnswer,
    LeaveRequest,
    Load,
    RegisterAnswer,
    RegisterRequest,
)
from reach_core.peer import Entry
from reach_core.problem import Problem
from reach_core.table import Change

MIN_TICK_S = 0.01


class Service:
    """`counts`: requests by kind, `refused`: by problem code. `changed` is called after each change of the table.

    `on_look` and `on_probe` make second looks and health checks; `looked` takes the answers of the former. Without
    anybody who looks, silence alone decides.
    """

    def __init__(
        self,
        registry: Registry,
        feed: Feed,
        clock: Callable[[], Moment],
        changed: Callable[[], None],
        log: ControlLog,
        info_version: Callable[[], int] = lambda: 0,
    ) -> None:
        self.registry = registry
        self.feed = feed
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.changes = 0
        self.on_look: Callable[[Look], None] = self._nobody_looks
        self.on_probe: Callable[[Probe], None] = _ignore
        self.on_heartbeat: Callable[[], None] = _nothing
        self._changed = changed
        self._log = log
        self._info_version = info_version
        self._was_frozen: str | None = None

    def register(self, request: RegisterRequest) -> RegisterAnswer:
        """Raises Problem."""
        self.counts["register"] += 1
        try:
            entry, changes = self.registry.register(request, self.clock())
        except Problem as problem:
            self._refuse("register", request.agent_id, problem)
            raise
        self.apply(changes)
        terms = self.registry.terms
        return RegisterAnswer(
            status="registered",
            agent_id=entry.agent_id,
            gen=entry.gen,
            ver=entry.ver,
            rank=entry.rank.label,
            lease_ttl_s=terms.ttl_s,
            heartbeat_s=terms.heartbeat_s,
            epoch=self.feed.epoch,
            seq=self.registry.table.seq,
            info=self._info_version(),
            hash=self.feed.root(),
        )

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Raises Problem."""
        self.counts["heartbeat"] += 1
        self.on_heartbeat()
        now = self.clock()
        try:
            entry, changes = self.registry.heartbeat(request, now)
        except Problem as problem:
            self._refuse("heartbeat", request.agent_id, problem)
            raise
        self.apply(changes)
        loads: dict[str, Load] = {}
        for agent_id in request.ask:
            load = self.registry.load_of(agent_id, now.s)
            if load is not None:
                loads[agent_id] = load
        return HeartbeatAnswer(
            status="ok",
            gen=entry.gen,
            ver=entry.ver,
            rank=entry.rank.label,
            lease_ttl_s=self.registry.terms.ttl_s,
            epoch=self.feed.epoch,
            seq=self.registry.table.seq,
            info=self._info_version(),
            hash=self.feed.root(),
            loads=loads,
        )

    def leave(self, request: LeaveRequest) -> LeaveAnswer:
        """Raises Problem."""
        self.counts["leave"] += 1
        try:
            changes = self.registry.leave(request, self.clock())
        except Problem as problem:
            self._refuse("leave", request.agent_id, problem)
            raise
        self.apply(changes)
        return LeaveAnswer(status="left", agent_id=request.agent_id)

    async def watch_time(self) -> None:
        """Let silence have its consequences, for as long as the node runs."""
        while True:
            stalls, now = self.registry.stalls, self.clock()
            tick = self.registry.tick(now)
            if self.registry.stalls > stalls:
                self._log.event("warn", "stalled", detail="This node stood still; all leases got that time added.")
            for look in tick.looks:
                self.on_look(look)
            for probe in tick.probes:
                self.on_probe(probe)
            self._tell_whether_frozen(now)
            self.apply(tick.changes)
            await asyncio.sleep(max(MIN_TICK_S, tick.next_s))

    def looked(self, look: Look, sighting: Sighting) -> None:
        """What a second look showed."""
        self.apply(self.registry.looked(look.agent_id, look.gen, sighting, self.clock()))

    def meet(self, entries: list[Entry], is_hearsay: bool) -> None:
        """Verified entries from elsewhere, or (`is_hearsay`) from a sidecar."""
        self.apply(self.registry.meet(entries, self.clock(), is_hearsay=is_hearsay))

    def apply(self, changes: list[Change]) -> None:
        """These changes were made in the table: log them, note them, tell them."""
        if changes:
            self.changes += len(changes)
            self._log.changes(changes)
            self._changed()

    def _nobody_looks(self, look: Look) -> None:
        self.looked(look, NOBODY)

    def _tell_whether_frozen(self, now: Moment) -> None:
        frozen = self.registry.frozen(now)
        if (frozen is None) != (self._was_frozen is None):
            if frozen is not None:
                self._log.event("warn", "frozen", detail=f"Nobody expires by the clock for now. {frozen}")
            else:
                self._log.event("info", "frozen", detail="Agents expire by the clock again.")
        self._was_frozen = frozen

    def _refuse(self, event: str, agent_id: str, problem: Problem) -> None:
        self.refused[problem.code] += 1
        level = "info" if problem.code == "register_again" else "warn"
        self._log.event(level, event, agent_id, f"refused ({problem.code}): {problem.detail}")


def _nothing() -> None:
    pass


def _ignore(_: object) -> None:
    pass
