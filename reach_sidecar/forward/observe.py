"""The outermost layer of both stacks: the trace, one log line a hop, the counters.

The line is written when the answer is out, so it can say how many bytes went and whether the caller saw the end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from time import perf_counter
from typing import Protocol

from reach_core.trace import TraceContext, new_context, parse_traceparent, span_of
from reach_sidecar.forward.call import Call
from reach_sidecar.http1.message import Field, Request, Response
from reach_sidecar.policy.naming import Destination

Layer = Callable[[Call], Awaitable[Response]]

TRACEPARENT = b"traceparent"


class CallLog(Protocol):
    def line(self, record: dict[str, object]) -> None: ...


class CallCounters(Protocol):
    in_flight: dict[str, int]

    def observe_call(self, side: str, capability: str, status: int, outcome: str, seconds: float) -> None: ...


class Observe:
    """`event` is `call` at the caller and `deliver` at the called side; `side` is `out` or `in`."""

    def __init__(self, inner: Layer, *, event: str, side: str, log: CallLog, counters: CallCounters,
                 random: Random) -> None:
        self._inner = inner
        self._event = event
        self._side = side
        self._log = log
        self._counters = counters
        self._random = random
        self._loop = asyncio.get_running_loop()

    async def __call__(self, request: Request, destination: Destination | None = None) -> Response:
        """`destination`: whom the request was found to be for, on the calling side."""
        call = Call(request, self._loop.time(), perf_counter())
        call.destination = destination
        take_trace(call, self._random)
        self._counters.in_flight[self._side] += 1
        try:
            response = await self._inner(call)
        except asyncio.CancelledError:
            call.outcome = "caller_gone"
            self._record(call, 499, 0, None)
            raise
        response.when_sent(lambda sent, error: self._record(call, response.status, sent, error))
        return response

    def _record(self, call: Call, status: int, bytes_out: int, error: BaseException | None) -> None:
        seconds = perf_counter() - call.began
        detail = None
        if isinstance(error, asyncio.CancelledError):
            call.outcome, detail = "caller_gone", "the caller went away before the answer was complete"
        elif error is not None:
            call.outcome, detail = "cut_off", str(error)
        elif not call.outcome:
            call.outcome = "success" if status < 400 else "answered"
        self._counters.in_flight[self._side] -= 1
        self._counters.observe_call(self._side, call.capability, status, call.outcome, seconds)
        record: dict[str, object] = {
            "level": "info" if status < 500 else "warn",
            "event": self._event,
            "trace_id": call.trace.trace_id,
            "span_id": call.span_id,
            "parent_id": call.parent_id,
            "key": call.key.decode("latin-1"),
            "caller": call.caller,
            "target": call.target,
            "capability": call.capability,
            "attempt": call.attempt or call.sends,
            "status": status,
            "outcome": call.outcome,
            "ms": int(seconds * 1_000_000) / 1000,
            "bytes_in": call.request.body.taken,
            "bytes_out": bytes_out,
        }
        if self._side == "in":
            record["caller_proved"] = False  # it is what the calling sidecar says of itself (design, "Reach-Caller")
        else:
            record["attempt_span_id"] = call.attempt_span_id or None  # the `parent_id` of the called side's line
        if call.remarks is not None:
            record.update(call.remarks)
        if detail is not None:
            record["detail"] = detail
        self._log.line(record)


def take_trace(call: Call, random: Random) -> None:
    """Take over the trace the request brings, or begin one; this hop's span is always new."""
    request = call.request
    given = request.index.get(TRACEPARENT)
    repeated = len(request.index) != len(request.headers) and _count(request.headers, TRACEPARENT) > 1
    context = None if given is None or repeated else parse_traceparent(given)
    if context is None:
        context = new_context(random.getrandbits(192))
        call.trace, call.span_id = context, context.span_id
        return
    call.parent_id = context.span_id
    call.span_id = span_of(random.getrandbits(64))
    call.trace = context


def _count(headers: list[Field], name: bytes) -> int:
    return sum(lower == name for lower, _, _ in headers)


def traceparent(trace: TraceContext, span_id: str) -> Field:
    return TRACEPARENT, TRACEPARENT, trace.header(span_id)
