"""The owner's side: register the local agent, renew its lease, tell its changes at once, leave.

One loop, one exchange at a time: each sends what is true when it starts, so nothing overtakes anything. What
was declared goes with a registration, flags and load go with a heartbeat. A change wakes the loop. While
control is gone it is asked again with back-off, and nothing else here depends on it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from reach_core.messages import (
    MAX_ASKED,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaveAnswer,
    LeaveRequest,
    Load,
    RegisterAnswer,
    RegisterRequest,
)
from reach_core.peer import Entry
from reach_core.problem import KINDS, Problem
from reach_sidecar.membership.controls import Backoff, Controls, EventLog, Refused, Unreachable
from reach_sidecar.membership.local import LocalAgent

HEARTBEAT_JITTER = 0.1
LEAVE_TIMEOUT_S = 1.0


class Registrar:
    """`registered` is set while control has this agent; a gateway has nothing to register and counts as such.

    `ask` names the agents whose load is wanted with the next heartbeat, `on_loads` gets it; `failures` names those
    that failed this sidecar's latest calls, and how often in a row. `on_answer` gets each answer, and the control node
    that gave it; `on_registered` whether the agent is. `refusal` is why control will not have the agent.
    """

    def __init__(
        self, controls: Controls, local: LocalAgent, advertise: Callable[[], str], instance: str, log: EventLog
    ) -> None:
        self.registered = asyncio.Event()
        self.refusal: Problem | None = None
        self.lease_ttl_s = 30.0
        self.heartbeat_s = 10.0
        self.gen = self.ver = 0  # of control's last answer: what we have is told with every message
        self.ask: Callable[[], Iterable[str]] = tuple
        self.on_loads: Callable[[dict[str, Load]], None] = _ignore
        self.failures: Callable[[], Mapping[str, int]] = dict
        self.on_registered: Callable[[bool], None] = _ignore
        self.on_answer: Callable[[str, RegisterAnswer | HeartbeatAnswer], None] = _ignore
        self._controls = controls
        self._local = local
        self._advertise = advertise
        self._instance = instance
        self._log = log
        self._due = asyncio.Event()
        self._backoff = Backoff()
        self._told: RegisterRequest | None = None
        self._wakes = self._answered = 0  # counted, and up to which of them control has answered
        self._answer = asyncio.Event()

    def wake(self) -> None:
        """Something changed: talk to control now. What control has under another id is not this agent."""
        told = self._told.agent_id if self._told is not None else None
        if told != self._local.agent_id and not self._local.is_gateway:
            self._set_registered(False)
        self._wakes += 1
        self._due.set()

    async def settled(self) -> None:
        """Until control has answered what the agent is now: it is registered then, or `refusal` says why not."""
        self.wake()
        wanted = self._wakes
        while self._answered < wanted:
            await self._answer.wait()

    def fence(self, entry: Entry) -> None:
        """The table has our agent as another process' (`entry`): it came later, so this one steps back and says so."""
        detail = (f"Another process at {entry.address} has registered as {entry.agent_id} after this one. Stop one of "
                  "them, or give it another id.")
        self._refused(Refused(409, "agent_id_conflict", detail))
        self.wake()

    async def run(self) -> None:
        while True:
            self._due.clear()
            wakes = self._wakes
            if self._local.is_gateway:
                self._set_registered(True)
                self._has_answered(wakes)
                await self._due.wait()
                continue
            if self._told is None:
                self._set_registered(False)
            wait_s = await self._exchange(wakes)
            try:
                async with asyncio.timeout(wait_s):
                    await self._due.wait()
            except TimeoutError:
                pass

    async def leave(self) -> None:
        """Say good-bye, in a second at most; control finds out by the lease otherwise."""
        if self._told is None:
            return
        message = LeaveRequest(agent_id=self._told.agent_id, instance=self._instance, gen=self.gen, ver=self.ver)
        self._told = None
        try:
            await self._controls.post("/v1/leave", message, LeaveAnswer, LEAVE_TIMEOUT_S)
        except (Unreachable, Refused) as error:
            self._log.event("info", "leave", status="not_told", detail=str(error))
        else:
            self._log.event("info", "leave", status="left")

    def _has_answered(self, wakes: int) -> None:
        self._answered = wakes
        answer, self._answer = self._answer, asyncio.Event()
        answer.set()

    async def _exchange(self, wakes: int) -> float:
        """One registration or heartbeat, begun after so many `wakes`; seconds until the next."""
        chance = self._controls.chance()
        asked = self._controls.url or ""
        try:
            await self._tell()
        except Refused as refusal:
            self._refused(refusal)
            self._has_answered(wakes)
            return self._backoff.next_s(chance)
        except Unreachable:
            alone = self._controls.move_on(asked) or asked == self._controls.url
            return self._backoff.next_s(chance) if alone else 0.0
        self._backoff.reset()
        self._has_answered(wakes)
        return self.heartbeat_s * (1 - HEARTBEAT_JITTER + 2 * HEARTBEAT_JITTER * chance)

    async def _tell(self) -> None:
        wanted = self._registration()
        if self._told is not None and self._told.agent_id != wanted.agent_id:
            await self.leave()
            self.gen = self.ver = 0
            wanted = self._registration()
        if self._told is not None and _declares_the_same(self._told, wanted):
            try:
                await self._renew(wanted)
                return
            except Refused as refusal:
                if refusal.code != "register_again":
                    raise
                self._log.event("info", "register", status="again", detail=refusal.detail)
        await self._register(wanted)

    async def _register(self, wanted: RegisterRequest) -> None:
        url = self._controls.url or ""
        answer = await self._controls.post("/v1/register", wanted, RegisterAnswer)
        again, self._told = self._told is not None, wanted
        self.gen, self.ver = answer.gen, answer.ver
        self.lease_ttl_s, self.heartbeat_s = answer.lease_ttl_s, answer.heartbeat_s
        self.refusal = None
        self._set_registered(True)
        self.on_answer(url, answer)
        names = ", ".join(one.name for one in wanted.capabilities) or "no capabilities"
        status = "changed" if again else "registered"
        self._log.event("info", "register", status=status, detail=f"{wanted.agent_id} at {wanted.address}: {names}")

    async def _renew(self, wanted: RegisterRequest) -> None:
        message = HeartbeatRequest(
            agent_id=wanted.agent_id,
            instance=self._instance,
            gen=self.gen,
            ver=self.ver,
            flags=wanted.flags,
            healthy=wanted.healthy,
            load=wanted.load,
            ask=tuple(self.ask())[:MAX_ASKED],
            failures=dict(islice(self.failures().items(), MAX_ASKED)),
        )
        url = self._controls.url or ""
        answer = await self._controls.post("/v1/heartbeat", message, HeartbeatAnswer)
        self.gen, self.ver, self.lease_ttl_s = answer.gen, answer.ver, answer.lease_ttl_s
        self.refusal = None
        self.on_answer(url, answer)
        if answer.loads:
            self.on_loads(answer.loads)

    def _registration(self) -> RegisterRequest:
        local = self._local
        return RegisterRequest(
            agent_id=local.agent_id,
            instance=self._instance,
            gen=self.gen,
            ver=self.ver,
            address=self._advertise(),
            version=local.version,
            capabilities=local.declared,
            limits=local.limits,
            flags=local.flags,
            healthy=local.confirmed,
            load=Load(running=local.running, queued=local.queued, limit=local.limits.max_concurrency),
        )

    def _refused(self, refusal: Refused) -> None:
        """Another process has the id, or control cannot take the declaration: stop advertising, and say so."""
        self._told = None
        self._set_registered(False)
        said = self.refusal.detail if self.refusal is not None else None
        code = refusal.code if refusal.code in KINDS else "bad_request"
        self.refusal = Problem(code, refusal.detail, agent=self._local.agent_id)
        if refusal.detail != said:
            self._log.event("error", "register", status=refusal.code, detail=refusal.detail)

    def _set_registered(self, is_registered: bool) -> None:
        self._local.registered = is_registered and not self._local.is_gateway
        self.on_registered(self._local.registered)
        if is_registered:
            self.registered.set()
        else:
            self.registered.clear()


def _declares_the_same(one: RegisterRequest, other: RegisterRequest) -> bool:
    return (one.address, one.version, one.capabilities, one.limits) == (
        other.address, other.version, other.capabilities, other.limits)


def _ignore(*_: object) -> None:
    pass
