"""Header fields at each hop: what passes through, what is added, what stops here.

What passes keeps its order, its case and its repetitions. Everything is decided in one pass per hop.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from reach_core.headers import HOP_BY_HOP, MESH_ANSWER, SIDECAR_ONLY, TARGETING, named_by_connection
from reach_sidecar.forward.call import Timing
from reach_sidecar.http1.message import Field

_ENTERING = HOP_BY_HOP | SIDECAR_ONLY | TARGETING | {b"host", b"traceparent", b"reach-timeout",
                                                      b"reach-retries-left", b"reach-api-token"}
_ENTERING_UNTRACED = _ENTERING | {b"tracestate"}
_DELIVERING = HOP_BY_HOP | TARGETING | {b"host", b"traceparent", b"reach-timeout", b"reach-journal", b"reach-scope"}
_AGENT_ANSWER = HOP_BY_HOP | MESH_ANSWER | SIDECAR_ONLY
_MESH_ANSWER_END = HOP_BY_HOP | MESH_ANSWER
# `Connection: Content-Length` would make a body the next request, `Connection: X-Forwarded-For` hide where a call comes
# from, and a key or a deadline that is named there would be lost.
_NEVER_NAMED = frozenset({b"close", b"keep-alive", b"upgrade", b"content-length", b"content-type", b"content-encoding",
                          b"host", b"traceparent", b"idempotency-key", b"forwarded", b"x-forwarded-for",
                          b"x-forwarded-proto", b"x-forwarded-host"})


def entering(headers: Iterable[Field], peer: str, *, traced: bool = True) -> list[Field]:
    """From a local client towards the mesh. `traced`: its trace is taken over, so `tracestate` goes with it."""
    return _with_forwarded_for(_passing(headers, _ENTERING if traced else _ENTERING_UNTRACED), peer)


def delivering(headers: Iterable[Field], peer: str) -> list[Field]:
    """From the mesh towards the agent."""
    return _with_forwarded_for(_passing(headers, _DELIVERING), peer)


def agent_answer(headers: Iterable[Field]) -> list[Field]:
    """From the agent towards the mesh: an agent cannot speak as a sidecar."""
    return _passing(headers, _AGENT_ANSWER)


def mesh_answer(headers: Iterable[Field]) -> list[Field]:
    """From the mesh towards the local client."""
    return _passing(headers, _MESH_ANSWER_END)


def passing(headers: Iterable[Field]) -> list[Field]:
    """Through a plain proxy hop: only what ends at each hop is taken out."""
    return _passing(headers, HOP_BY_HOP)


def _passing(headers: Iterable[Field], stopping: Collection[bytes]) -> list[Field]:
    kept = [header for header in headers if header[0] not in stopping]
    connection = [header[2] for header in headers if header[0] == b"connection"]
    if not connection:
        return kept
    named = frozenset().union(*map(named_by_connection, connection)) - _NEVER_NAMED
    return [header for header in kept if header[0] not in named or header[0].startswith(b"reach-")]


def _with_forwarded_for(headers: list[Field], peer: str) -> list[Field]:
    """Append the client's address, as every proxy on the way does; what is there is never replaced."""
    if not peer:
        return headers
    address = peer.encode()
    for index in range(len(headers) - 1, -1, -1):
        if headers[index][0] == b"x-forwarded-for":
            lower, name, value = headers[index]
            headers[index] = (lower, name, b"%b, %b" % (value, address) if value else address)
            return headers
    headers.append((b"x-forwarded-for", b"X-Forwarded-For", address))
    return headers


def is_event_stream(content_type: bytes | None) -> bool:
    return content_type is not None and content_type[:17].lower() == b"text/event-stream"


class Load(NamedTuple):
    """What the called side says of itself with every answer between sidecars; times in µs. `limit` 0: it drains."""

    running: int
    queued: int
    limit: int
    queue_us: int
    agent_us: int


def load_field(running: int, queued: int, limit: int, queue_ms: float, agent_ms: float) -> Field:
    """`Reach-Load: <running> <queued> <limit> <queue µs> <agent µs>`."""
    return (b"reach-load", b"Reach-Load",
            b"%d %d %d %d %d" % (running, queued, limit, queue_ms * 1000, agent_ms * 1000))


def read_load(value: bytes | None) -> Load | None:
    """A `Reach-Load` value; None where it is absent or makes no sense."""
    if value is None:
        return None
    try:
        load = Load(*map(int, value.split()))
    except (TypeError, ValueError):
        return None
    return load if min(load) >= 0 else None


def server_timing(timing: Timing) -> Field:
    queue, agent, mesh = int(timing.queue_ms * 10), int(timing.agent_ms * 10), int(timing.mesh_ms * 10)
    value = b"queue;dur=%d.%d, agent;dur=%d.%d, mesh;dur=%d.%d" % (
        queue // 10, queue % 10, agent // 10, agent % 10, mesh // 10, mesh % 10)
    if timing.retry_ms:
        value += b", retry;dur=%.1f" % timing.retry_ms
    return b"server-timing", b"Server-Timing", value
