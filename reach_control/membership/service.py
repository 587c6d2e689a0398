"""What a control node does for sidecars: each request decided by the registry, logged, counted, handed on."""

import asyncio
from collections import Counter
from collections.abc import Callable

from reach_control.membership.feed import Feed
from reach_control.registry.lease import Moment
from reach_control.registry.look import NOBODY
from reach_control.registry.registry import Registry
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
from reach_core.problem import Problem
from reach_core.table import Change

MIN_TICK_S = 0.01


class Service:
    """`counts`: requests by kind, `refused`: by problem code. `changed` is called after each change of the
    table.
    """

    def __init__(
        self,
        registry: Registry,
        feed: Feed,
        clock: Callable[[], Moment],
        changed: Callable[[], None],
        log: ControlLog,
    ) -> None:
        self.registry = registry
        self.feed = feed
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.changes = 0
        self._changed = changed
        self._log = log

    def register(self, request: RegisterRequest) -> RegisterAnswer:
        """Raises Problem."""
        self.counts["register"] += 1
        try:
            entry, changes = self.registry.register(request, self.clock())
        except Problem as problem:
            self._refuse("register", request.agent_id, problem)
            raise
        self._apply(changes)
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
        )

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Raises Problem."""
        self.counts["heartbeat"] += 1
        now = self.clock()
        try:
            entry, changes = self.registry.heartbeat(request, now)
        except Problem as problem:
            self._refuse("heartbeat", request.agent_id, problem)
            raise
        self._apply(changes)
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
        self._apply(changes)
        return LeaveAnswer(status="left", agent_id=request.agent_id)

    async def watch_time(self) -> None:
        """Let silence have its consequences, for as long as the node runs."""
        while True:
            stalls, now = self.registry.stalls, self.clock()
            tick = self.registry.tick(now)
            if self.registry.stalls > stalls:
                self._log.event("warn", "stalled", detail="This node stood still; all leases got that time added.")
            for look in tick.looks:  # nobody looks yet: silence alone decides
                tick.changes.extend(self.registry.looked(look.agent_id, look.gen, NOBODY, now))
            self._apply(tick.changes)
            await asyncio.sleep(max(MIN_TICK_S, tick.next_s))

    def _apply(self, changes: list[Change]) -> None:
        if changes:
            self.changes += len(changes)
            self._log.changes(changes)
            self._changed()

    def _refuse(self, event: str, agent_id: str, problem: Problem) -> None:
        self.refused[problem.code] += 1
        level = "info" if problem.code == "register_again" else "warn"
        self._log.event(level, event, agent_id, f"refused ({problem.code}): {problem.detail}")
