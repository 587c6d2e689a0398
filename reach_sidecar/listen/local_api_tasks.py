"""`POST /tasks/run`: the articles' way to call a capability, over the same path as every call.

The agent gets `{task, task_id, trace_id}` at `/process`. `task_id` is the `Idempotency-Key`. A repeat of a task
must be the same request, byte for byte, or it is taken for another one with the same key: so a task that names
itself and brings no trace gets its trace id from its name.
"""

import secrets
from collections.abc import Awaitable, Callable
from hashlib import blake2b

import msgspec

from reach_core.headers import HOP_BY_HOP
from reach_core.names import normalise
from reach_core.trace import TraceContext, new_context, parse_traceparent
from reach_core.units import format_duration
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Field, Request, Response, field
from reach_sidecar.listen.local_api_types import RunTask, seconds
from reach_sidecar.policy.dedup import MADE_PREFIX

PATH = b"/process"
_REPLACED = HOP_BY_HOP | {
    b"content-length", b"content-type", b"reach-target", b"traceparent", b"idempotency-key", b"reach-session",
    b"reach-timeout",
}

_OF_CONTENT = frozenset({b"content-type", b"content-length", b"content-encoding"})

Call = Callable[[Request], Awaitable[Response]]


async def run_task(request: Request, task: RunTask, call: Call) -> Response:
    """The agent's own answer. `request` is the one that asked; its other headers pass through.

    Success is exactly 200 in that interface, so an agent's other 2xx becomes one; 202 says "not done yet" and
    stays. Raises ValueError where the timeout cannot be read, and what `call` raises.
    """
    response = await call(as_call(request, task))
    if 200 < response.status < 300 and response.status != 202:
        if response.status == 204:  # the same answer, or what waits for its end would wait for ever
            response.body = b"null"
            response.length = len(response.body)
            response.headers = [one for one in response.headers if one[0] not in _OF_CONTENT]
            response.headers.append(field("Content-Type", "application/json"))
        response.status, response.reason = 200, b"OK"
    return response


def as_call(request: Request, task: RunTask) -> Request:
    """The request that goes through the path of a call."""
    given_key = request.header(b"idempotency-key")
    task_id = task.task_id or (given_key.decode("latin-1") if given_key else None)
    given_trace = parse_traceparent(request.header(b"traceparent"))
    trace = given_trace or _trace_of(task, task_id)
    if not task_id:  # of the kind that sidecars make, for nobody will come back with it
        task_id = f"{MADE_PREFIX.decode()}{secrets.token_hex(12)}-{secrets.token_hex(4)}"
    replaced = _REPLACED if given_trace else _REPLACED | {b"tracestate"}
    headers = [
        *(one for one in request.headers if one[0] not in replaced),
        *_headers(request, task, task_id, trace),
    ]
    body = Body()
    body.feed(msgspec.json.encode({"task": task.task, "task_id": task_id, "trace_id": trace.trace_id}))
    headers.append(field("Content-Length", str(body.size)))
    body.finish()
    synthetic = Request(b"POST", PATH, 11, headers, body)
    synthetic.peer = request.peer
    return synthetic


def _headers(request: Request, task: RunTask, task_id: str, trace: TraceContext) -> list[Field]:
    headers = [
        field("Content-Type", "application/json"),
        field("Reach-Target", task.capability),
        field("Idempotency-Key", task_id),
        field("traceparent", trace.header()),
    ]
    session = task.session_id.encode() if task.session_id is not None else request.header(b"reach-session")
    if session is not None:
        headers.append(field("Reach-Session", session))
    given = task.timeout
    timeout = request.header(b"reach-timeout") if given is None else format_duration(seconds(given)).encode()
    if timeout is not None:
        headers.append(field("Reach-Timeout", timeout))
    return headers


def _trace_of(task: RunTask, task_id: str | None) -> TraceContext:
    if task_id is None:
        return new_context(secrets.randbits(192))
    name = msgspec.json.encode((normalise(task.capability), task_id))
    return new_context(int.from_bytes(blake2b(name, digest_size=24).digest(), "big"))
