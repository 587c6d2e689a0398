"""A problem as an answer: the one place that renders errors (RFC 9457 body, RFC 9209 `Proxy-Status`)."""

import random

from reach_core.problem import Problem
from reach_core.trace import new_context, parse_traceparent
from reach_sidecar.http1.message import Request, Response, field


def render(problem: Problem, trace_id: str | None = None, proxy: str = "reach") -> Response:
    """`problem` as `application/problem+json`; `proxy` names the sidecar in `Proxy-Status`.

    Every one carries a trace id: without `trace_id` (a request that could not even be read) one is made.
    """
    if trace_id is None:
        trace_id = new_context(random.getrandbits(192)).trace_id
    headers = [field(name, value) for name, value in problem.headers(proxy, trace_id).items()]
    return Response(problem.status, headers, problem.body(trace_id))


def trace_of(request: Request) -> str:
    """The trace that a refused request belongs to: its own where it brings a valid one, else a new one."""
    context = parse_traceparent(request.header(b"traceparent"))
    return (context or new_context(random.getrandbits(192))).trace_id
