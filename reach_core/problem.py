"""Every error Agent-Reach makes itself: code, status, and whether the agent may have done the work.

Rendered as `application/problem+json` (RFC 9457) with a `Proxy-Status` header (RFC 9209). `executed` is the
field callers decide by: `no` means repeating is free of side effects, `unknown` means it may not be.
Source of the table: design, "Errors".
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import orjson

Executed = Literal["no", "yes", "unknown"]

MEDIA_TYPE = "application/problem+json"

_WORSE: dict[Executed, int] = {"no": 0, "unknown": 1, "yes": 2}


class Kind(NamedTuple):
    """What is fixed for each code: HTTP status, whether the agent may have run, title, RFC 9209 error type."""

    status: int
    executed: Executed
    title: str
    proxy_error: str


KINDS: dict[str, Kind] = {
    "bad_request": Kind(400, "no", "The request is malformed", "http_request_error"),
    "header_too_large": Kind(431, "no", "The header block is too large", "http_request_error"),
    "uri_too_long": Kind(414, "no", "The URL is too long", "http_request_error"),
    "body_too_large": Kind(413, "no", "The body is too large", "http_request_error"),
    "bad_host": Kind(421, "no", "This door does not serve that host", "http_request_denied"),
    "request_timeout": Kind(408, "no", "The request did not arrive in time", "http_request_error"),
    "method_not_allowed": Kind(405, "no", "That method is not offered here", "http_request_error"),
    "not_implemented": Kind(501, "no", "The method is unknown", "http_request_error"),
    "not_found": Kind(404, "no", "There is nothing at that path", "http_request_error"),
    "no_such_capability": Kind(404, "no", "No agent declares that capability", "destination_not_found"),
    "no_such_agent": Kind(404, "no", "No agent has that id", "destination_not_found"),
    "no_agent_available": Kind(503, "no", "No agent can take the call now", "destination_unavailable"),
    "backpressure": Kind(503, "no", "All agents are busy", "connection_limit_reached"),
    "breaker_open": Kind(503, "no", "The agents failed too often and are given a rest", "destination_unavailable"),
    "deadline_too_short": Kind(504, "no", "Too little time is left for this call", "http_response_timeout"),
    "deadline_exceeded": Kind(504, "unknown", "The time for this call is over", "http_response_timeout"),
    "retries_exhausted": Kind(502, "no", "Every attempt failed", "destination_unavailable"),
    "outcome_unknown": Kind(502, "unknown", "It is not known whether the agent did the work", "connection_terminated"),
    "agent_failure": Kind(502, "yes", "The agent reported a failure", "http_response_incomplete"),
    "agent_invalid_request": Kind(422, "yes", "The agent called the request invalid", "http_request_error"),
    "bad_agent_response": Kind(502, "unknown", "The agent's answer is not valid HTTP", "http_protocol_error"),
    "bad_gateway": Kind(502, "no", "The other side could not be reached", "destination_unavailable"),
    "key_reused": Kind(422, "no", "The idempotency key belongs to another request", "http_request_error"),
    "in_progress": Kind(409, "unknown", "The first call with this key is still running", "http_request_denied"),
    "answer_not_kept": Kind(409, "yes", "The call was made, its answer was not kept", "http_request_denied"),
    "agent_id_conflict": Kind(409, "no", "The agent id is taken", "http_request_denied"),
    "register_again": Kind(404, "no", "That agent is not registered", "http_request_error"),
    "store_unavailable": Kind(503, "no", "The deduplication store cannot be written", "proxy_internal_error"),
    "not_allowed": Kind(403, "no", "This is not allowed", "http_request_denied"),
    "internal_error": Kind(500, "unknown", "The sidecar made a mistake", "proxy_internal_error"),
}


def worst(verdicts: Iterable[Executed]) -> Executed:
    """What several attempts add up to: yes > unknown > no; nothing tried is `no`."""
    return max(verdicts, key=_WORSE.__getitem__, default="no")


class Attempt(NamedTuple):
    """One try as it is shown in a problem: whom, what came of it, how long it took in ms."""

    agent: str
    result: str
    ms: float
    executed: Executed = "no"


class Problem(Exception):
    """An error with its fault and consequence. `detail` is a sentence that says what to do."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        executed: Executed | None = None,
        status: int | None = None,
        agent: str | None = None,
        attempts: Iterable[Attempt] = (),
        retry_after_s: int | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        kind = KINDS[code]
        self.code = code
        self.detail = detail
        self.title = kind.title
        self.status = status or kind.status
        self.executed: Executed = executed or kind.executed
        self.agent = agent
        self.attempts = tuple(attempts)
        self.retry_after_s = retry_after_s if retry_after_s is not None else (1 if self.status == 503 else None)
        self.extra = extra or {}

    def to_dict(self, trace_id: str | None = None) -> dict[str, object]:
        """The members of the problem+json document, in reading order; `agent` is null where none was involved."""
        document: dict[str, object] = {
            "type": f"urn:reach:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "executed": self.executed,
        }
        if trace_id is not None:
            document["trace_id"] = trace_id
        document["agent"] = self.agent
        document["attempts"] = [{"agent": a.agent, "result": a.result, "ms": round(a.ms, 1)} for a in self.attempts]
        document.update(self.extra)
        return document

    def proxy_status(self, proxy: str) -> str:
        """The value of `Proxy-Status`, for example `reach; error=destination_not_found; details="no_such_agent"`."""
        name = proxy if proxy[:1].isalpha() else f'"{proxy}"'  # a token begins with a letter (RFC 8941)
        return f'{name}; error={KINDS[self.code].proxy_error}; details="{self.code}"'

    def headers(self, proxy: str, trace_id: str | None = None) -> dict[str, str]:
        """The fields of the answer, in the order they are sent; `proxy` is who says it."""
        fields = {"Content-Type": MEDIA_TYPE, "Proxy-Status": self.proxy_status(proxy)}
        if self.retry_after_s is not None:
            fields["Retry-After"] = str(self.retry_after_s)
        if trace_id is not None:
            fields["Reach-Trace-Id"] = trace_id
        return fields

    def body(self, trace_id: str | None = None) -> bytes:
        """`to_dict` as it is sent."""
        return orjson.dumps(self.to_dict(trace_id))
