"""A problem as an answer: the one place that renders errors (RFC 9457 body, RFC 9209 `Proxy-Status`)."""

import orjson

from reach_core.problem import Problem
from reach_sidecar.http1.message import Response, field


def render(problem: Problem, trace_id: str | None = None, proxy: str = "reach") -> Response:
    """`problem` as `application/problem+json`; `proxy` names the sidecar in `Proxy-Status`."""
    headers = [
        field("Content-Type", "application/problem+json"),
        field("Proxy-Status", problem.proxy_status(proxy)),
    ]
    if problem.retry_after_s is not None:
        headers.append(field("Retry-After", str(problem.retry_after_s)))
    if trace_id is not None:
        headers.append(field("Reach-Trace-Id", trace_id))
    return Response(problem.status, headers, orjson.dumps(problem.to_dict(trace_id)))
