"""The last step: the agent itself, over plain HTTP on loopback, within the execution time-out."""

import asyncio
from time import perf_counter

from reach_core.deadline import format_timeout
from reach_core.peer import Capability
from reach_core.problem import Problem
from reach_sidecar.forward import fields
from reach_sidecar.forward.call import Call
from reach_sidecar.forward.failure import Refusal, request_broke
from reach_sidecar.forward.observe import traceparent
from reach_sidecar.forward.outgoing import frame, switch
from reach_sidecar.forward.replay import ReplayedBody
from reach_sidecar.http1.body import Body, BodyError
from reach_sidecar.http1.client import AnswerTimeout, BadAnswer, ClientConnection, ConnectFailed, ExchangeBroken
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Field, Response
from reach_sidecar.http1.pool import Pool
from reach_sidecar.http1.wire import request_head
from reach_sidecar.membership.health import HealthChecks
from reach_sidecar.membership.local import LocalAgent, host_and_port
from reach_sidecar.policy import outcome
from reach_sidecar.policy.repeat import SAFE_METHODS
from reach_sidecar.policy.timeout import Durations, adaptive_s, execution_s

# Servers close idle connections when they like: only what was idle very shortly is used again (design §3).
IDLE_S = 1.0
IDLE_ONCE_ONLY_S = 0.5
# The loop sees a close within a turn, and a connection that was in use a moment ago is not closed for being idle. To
# ask the kernel about it costs a system call per call, 5 µs at 16 connections, and sees next to nothing more.
TRUST_S = 0.05


class Deliver:
    def __init__(self, *, local: LocalAgent, health: HealthChecks, limits: Limits) -> None:
        self._local = local
        self._health = health
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._pool: Pool | None = None
        self._address: str | None = None
        self._authority = b""
        self._durations: dict[str, Durations] = {}  # of adaptive capabilities

    async def __call__(self, call: Call) -> Response:
        capability = call.offered
        request = call.request
        repeatable = capability.idempotent or request.method in SAFE_METHODS
        began = perf_counter()
        deadline = call.deadline
        if capability.timeout_s is not None or capability.adaptive:
            deadline = self._execution_deadline(capability, deadline)
        pool = self._current_pool()
        connection = pool.take_idle(IDLE_S if repeatable else IDLE_ONCE_ONLY_S) or await self._connect(pool, deadline)
        content = ReplayedBody(request.body).for_attempt()
        headers = self._headers(call, deadline)
        chunked = frame(headers, content, request)
        head = request_head(request.method, request.target, headers)
        try:
            response = await connection.exchange(request.method, head, content, deadline, chunked=chunked,
                                                 interim=request.interim)
        except ConnectFailed:
            self._health.check_soon()
            raise Refusal("agent_unreachable", f"the agent {self._local.agent_id} closed the connection before the "
                          "call was sent") from None
        except AnswerTimeout:
            took_s = perf_counter() - began
            if capability.adaptive:
                self._durations_of(capability).add(took_s, timed_out=True)
            raise Problem("deadline_exceeded", f"The agent {self._local.agent_id} did not answer within {took_s:.3g} "
                          "s; it may still have done the work.") from None
        except ExchangeBroken:
            if request.body.error is not None:  # it was we who broke it off
                raise request_broke(request.body.error) from None
            self._health.check_soon()
            raise Problem("outcome_unknown", f"The agent {self._local.agent_id} closed the connection before its "
                          "answer; it may have done the work.") from None
        except BadAnswer as error:
            raise Problem("bad_agent_response", f"The agent {self._local.agent_id} answered with something that is not "
                          f"HTTP: {error}") from None
        if response.length and isinstance(response.body, Body):
            await self._first_bytes(response.body, deadline)
        took_s = perf_counter() - began
        call.agent_ms = took_s * 1000
        if capability.adaptive:
            self._durations_of(capability).add(took_s, timed_out=False)
        response.headers = fields.agent_answer(response.headers)
        if capability.outcome == "json" or b"reach-outcome" in response.index:
            await self._hear_verdict(call, response, deadline)
        if response.tunnel is not None:
            switch(response.headers, request)
        return response

    async def _hear_verdict(self, call: Call, response: Response, deadline: float) -> None:
        """What the agent says of its work, in a field or in JSON; the calling side is told in the field."""
        said = outcome.from_header(response.index.get(b"reach-outcome"))
        if said is None and call.offered.outcome == "json" and response.status < 300 and response.sized \
                and outcome.is_json(response.index.get(b"content-type")):
            body = response.body
            if isinstance(body, Body) and 0 < (response.length or 0) <= outcome.MAX_JSON_BYTES:
                body = response.body = await self._collect(body, deadline)
            said = outcome.from_json(body) if isinstance(body, bytes) else None
        call.verdict = said or ""
        response.headers = [header for header in response.headers if header[0] != b"reach-outcome"]
        if said is not None:
            response.headers.append((b"reach-outcome", b"Reach-Outcome", said.encode()))

    async def _collect(self, body: Body, deadline: float) -> bytes:
        try:
            async with asyncio.timeout_at(deadline):
                return await body.collect(outcome.MAX_JSON_BYTES)
        except asyncio.CancelledError:
            body.abandon()
            raise
        except TimeoutError:
            body.abandon()
            raise Problem("deadline_exceeded", f"The agent {self._local.agent_id} began its answer and did not end it "
                          "in time; it may have done the work.") from None
        except BodyError:
            self._health.check_soon()
            raise Problem("outcome_unknown", f"The agent {self._local.agent_id} closed the connection within its "
                          "answer; it may have done the work.") from None

    def _execution_deadline(self, capability: Capability, deadline: float) -> float:
        now = self._loop.time()
        learnt_s = adaptive_s(self._durations_of(capability)) if capability.adaptive else None
        return now + execution_s(capability.timeout_s, deadline - now, learnt_s)

    def _durations_of(self, capability: Capability) -> Durations:
        durations = self._durations.get(capability.name)
        if durations is None:
            durations = self._durations[capability.name] = Durations()
        return durations

    async def _first_bytes(self, body: Body, deadline: float) -> None:
        """A head that promises a body goes on together with its beginning: an agent that dies between the two has
        given no answer, and that can still be said."""
        try:
            async with asyncio.timeout_at(deadline):
                await body.begun()
        except asyncio.CancelledError:
            body.abandon()
            raise
        except TimeoutError:
            return  # it has answered in time; from here on the stream's own idle time counts
        except BodyError:
            self._health.check_soon()
            raise Problem("outcome_unknown", f"The agent {self._local.agent_id} closed the connection behind the head "
                          "of its answer; it may have done the work.") from None

    async def _connect(self, pool: Pool, deadline: float) -> ClientConnection:
        try:
            return await pool.connect(max(0.001, deadline - self._loop.time()))
        except ConnectFailed as error:
            if error.hurried:
                raise Problem("deadline_exceeded", "The call's time was over before the agent could take it.",
                              executed="no") from None
            if error.refused:
                self._health.report_refused()
            else:
                self._health.check_soon()
            raise Refusal("agent_unreachable", f"the agent {self._local.agent_id} cannot be reached: {error}") from None

    def _current_pool(self) -> Pool:
        address = self._local.address
        if self._pool is None or address != self._address:
            if self._pool is not None:
                self._pool.retire()  # what runs there may end there
            self._address = address
            self._authority = (address or "").removeprefix("http://").encode()
            self._pool = Pool(*host_and_port(address or ""), self._limits, trust_s=TRUST_S)
        return self._pool

    def _headers(self, call: Call, deadline: float) -> list[Field]:
        return [
            (b"host", b"Host", self._authority),
            *fields.delivering(call.request.headers, call.request.peer),
            (b"reach-timeout", b"Reach-Timeout", format_timeout(deadline - self._loop.time())),
            traceparent(call.trace, call.span_id),
        ]

    def prune(self, now: float) -> None:
        if self._pool is not None:
            self._pool.prune(now, IDLE_S)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
