"""Room at the agent: `max_concurrency` places and a bounded queue, first come first served, waiting at most the
deadline. Whatever is refused here has not run.
"""

import asyncio
from collections import deque
from time import perf_counter

from reach_core.problem import Problem
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import Refusal
from reach_sidecar.forward.observe import Layer
from reach_sidecar.forward.running import RunningCalls
from reach_sidecar.http1.message import Response
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.policy import limit


class Room:
    """Places at the agent, counted in `local.running` and `local.queued`."""

    def __init__(self, local: LocalAgent) -> None:
        self._local = local
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        local.changed.append(self._hand_out)  # it may take more at once from now on

    def try_enter(self) -> bool:
        """False: there is a place in the queue only. Raises Refusal (`busy`) where there is none either."""
        local = self._local
        says = limit.enter(local.running, local.queued, len(self._waiting), local.limits)
        if says == "enter":
            local.running += 1
            return True
        if says == "busy":
            raise Refusal("busy", f"the agent is at its limit of {local.limits.max_concurrency} calls and "
                          f"{local.limits.queue} wait")
        return False

    async def wait(self, deadline: float) -> None:
        """Queue for a place. Raises Problem at the deadline."""
        local = self._local
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
    def __init__(self, inner: Layer, *, local: LocalAgent, room: Room, running: RunningCalls) -> None:
        self._inner = inner
        self._local = local
        self._room = room
        self._running = running

    async def __call__(self, call: Call) -> Response:
        local = self._local
        if local.closing:
            raise Refusal("draining", f"the agent {local.agent_id} is shutting down")
        if local.unfit:
            raise Refusal("agent_unreachable", f"the agent {local.agent_id} does not answer its health checks")
        self._running.enter(call)
        try:
            if not self._room.try_enter():
                waited = perf_counter()
                await self._room.wait(call.deadline)
                call.queue_ms = (perf_counter() - waited) * 1000
        except BaseException:
            self._running.leave(call)
            raise
        try:
            if call.before_agent is not None:
                await call.before_agent()
            response = await self._inner(call)
        except BaseException:
            self._left(call)
            raise
        response.when_sent(lambda _sent, _error: self._left(call))
        return response

    def _left(self, call: Call) -> None:
        self._room.leave()
        self._running.leave(call)
