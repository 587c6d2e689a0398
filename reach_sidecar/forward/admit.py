"""The called side's door: is the call for this agent, may it come in, is there room?

Whatever is refused here has not run, and says so (`Reach-Refused`), so the caller tries the next agent at once.
Room is `max_concurrency` places and a bounded queue, first come first served, waiting at most the deadline.
"""

import asyncio
from collections import deque
from time import perf_counter

from reach_core.names import normalise
from reach_core.peer import Capability
from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.cancel import RunningCalls
from reach_sidecar.forward.deliver import Deliver
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.view import ANY


class Room:
    """Places at the agent, counted in `local.running` and `local.queued`."""

    def __init__(self, local: LocalAgent) -> None:
        self._local = local
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        local.changed.append(self._hand_out)  # it may take more at once from now on

    def try_enter(self) -> bool:
        local = self._local
        if local.running < local.limits.max_concurrency and not self._waiting:
            local.running += 1
            return True
        return False

    async def enter(self, deadline: float) -> None:
        """Wait for a place. Raises Refusal (`busy`) when the queue is full, Problem at the deadline."""
        local = self._local
        if local.queued >= local.limits.queue:
            raise Refusal("busy", f"the agent is at its limit of {local.limits.max_concurrency} calls and "
                          f"{local.limits.queue} wait")
        place: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(place)
        local.queued += 1
        timer = self._loop.call_at(deadline, _give_up, place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave()  # the place came together with the cancellation
            raise
        finally:
            timer.cancel()
            local.queued -= 1
            if place in self._waiting:
                self._waiting.remove(place)

    def leave(self) -> None:
        """Free a place, for the call that waits longest if there is one."""
        self._local.running -= 1
        if self._waiting:
            self._hand_out()

    def _hand_out(self) -> None:
        local = self._local
        while self._waiting and local.running < local.limits.max_concurrency:
            place = self._waiting.popleft()
            if not place.done():
                local.running += 1
                place.set_result(None)


def _give_up(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_exception(Problem("deadline_exceeded", "The call's time was over while it waited for a place.",
                                    executed="no"))


class Admit:
    def __init__(self, inner: Deliver, *, local: LocalAgent, room: Room, running: RunningCalls,
                 default_timeout_s: float) -> None:
        self._inner = inner
        self._local = local
        self._room = room
        self._running = running
        self._default_timeout_s = default_timeout_s
        self._loop = asyncio.get_running_loop()

    async def __call__(self, call: Call) -> Response:
        capability = self._read(call)
        local = self._local
        if local.unfit:
            raise Refusal("agent_unreachable", f"the agent {local.agent_id} does not answer its health checks")
        self._running.enter(call.caller, call.key)
        try:
            if not self._room.try_enter():
                waited = perf_counter()
                await self._room.enter(call.deadline)
                call.queue_ms = (perf_counter() - waited) * 1000
        except BaseException:
            self._running.leave(call.caller, call.key)
            raise
        try:
            response = await self._inner(call, capability)
        except BaseException:
            self._left(call)
            raise
        response.when_sent(lambda _sent, _error: self._left(call))
        return response

    def _left(self, call: Call) -> None:
        self._room.leave()
        self._running.leave(call.caller, call.key)

    def _read(self, call: Call) -> Capability:
        """What the calling sidecar says of the call; the capability's own settings are the local ones."""
        get = call.request.index.get
        target, agent = get(b"reach-target", b""), get(b"reach-agent", b"")
        call.caller = get(b"reach-caller", b"").decode("latin-1")
        call.key = get(b"idempotency-key", b"")
        attempt = get(b"reach-attempt", b"")
        call.attempt = int(attempt[:3]) if attempt.isdigit() else 0
        call.take_deadline(self._default_timeout_s)
        local = self._local
        call.target = local.agent_id
        name = target.decode("utf-8", "replace")
        call.capability = "" if name.startswith("@") else normalise(name)
        if agent.decode("latin-1") != local.agent_id or local.is_gateway:
            raise Refusal("not_here", f"the agent {agent.decode('latin-1')!r} does not live at this address")
        if local.closing:
            raise Refusal("draining", f"the agent {local.agent_id} is shutting down")
        if not call.capability:
            return ANY
        capability = local.capabilities.get(call.capability)
        if capability is None:
            raise Refusal("not_here", f"the agent {local.agent_id} does not offer {name!r} any more")
        return capability
